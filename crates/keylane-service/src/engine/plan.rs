//! How a job's steps are numbered in the store, where each is a subtask.
//!
//! | in the store | what it is |
//! |---|---|
//! | 0, if the job has a split | the split |
//! | those between | the subtasks, in order |
//! | the last, if the job has a fan-in, and its subtasks are known | the fan-in |

use crate::SubtaskNumber;
use crate::head::Head;
use crate::schedule::Step;

/// Which of a job's stored subtasks are its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// How many the store has.
    pub(super) stored: u32,
    split: bool,
    fan_in: bool,
}

impl Plan {
    /// Of a job with this head, of which the store has so many.
    pub(super) fn new(head: &Head, stored: u32) -> Self {
        Plan { stored, split: head.split, fan_in: head.fan_in }
    }

    /// Whether its subtasks are yet to be made.
    pub(super) fn is_unsplit(&self) -> bool {
        self.split && self.stored <= 1
    }

    /// Whether there is a fan-in, and it has a number.
    fn has_fan_in(&self) -> bool {
        self.fan_in && !self.is_unsplit()
    }

    /// How many subtasks there are, as people count.
    pub(super) fn total(&self) -> u32 {
        self.stored - u32::from(self.split) - u32::from(self.has_fan_in())
    }

    /// The number of a step in the store.
    pub(super) fn number(&self, step: Step) -> SubtaskNumber {
        match step {
            Step::Split => 0,
            Step::Subtask(number) => number + u32::from(self.split),
            Step::FanIn => self.stored - 1,
        }
    }

    /// The step that has a number in the store.
    pub(super) fn step(&self, number: SubtaskNumber) -> Step {
        if self.split && number == 0 {
            Step::Split
        } else if self.has_fan_in() && number + 1 == self.stored {
            Step::FanIn
        } else {
            Step::Subtask(number - u32::from(self.split))
        }
    }

    /// Those of its steps that are no subtasks, and have a number.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step> {
        let split = self.split.then_some(Step::Split);
        split.into_iter().chain(self.has_fan_in().then_some(Step::FanIn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(split: bool, fan_in: bool, stored: u32) -> Plan {
        Plan { stored, split, fan_in }
    }

    #[test]
    fn a_number_and_its_step_are_the_same() {
        for (split, fan_in) in [(false, false), (false, true), (true, false), (true, true)] {
            let least = u32::from(split) + u32::from(fan_in);
            for stored in least..least + 5 {
                let plan = plan(split, fan_in, stored);
                for number in 0..stored {
                    assert_eq!(plan.number(plan.step(number)), number, "{plan:?}");
                }
                let subtasks =
                    (0..stored).filter(|number| matches!(plan.step(*number), Step::Subtask(_)));
                assert_eq!(subtasks.count(), plan.total() as usize, "{plan:?}");
            }
        }
    }

    #[test]
    fn before_its_split_a_job_has_no_subtasks() {
        let plan = plan(true, true, 1);
        assert!(plan.is_unsplit());
        assert_eq!((plan.total(), plan.step(0)), (0, Step::Split));
        assert_eq!(plan.steps().collect::<Vec<_>>(), [Step::Split]);
    }
}
