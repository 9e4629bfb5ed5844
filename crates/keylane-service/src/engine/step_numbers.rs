//! Numbers of a job's steps in the store, where each step is stored as a subtask.
//!
//! | number in the store | step |
//! |---|---|
//! | 0, if the job has a split | the split |
//! | the numbers between | the subtasks, in order |
//! | the last, if the job has a fan-in, and its subtasks are known | the fan-in |

use crate::SubtaskNumber;
use crate::job_definition::JobDefinition;
use crate::scheduler::Step;

/// Numbering of a job's steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepNumbers {
    /// Number of steps in the store.
    pub(super) stored: u32,
    split: bool,
    fan_in: bool,
}

impl StepNumbers {
    /// Creates the numbering of a job with this head and `stored` steps in the store.
    pub(super) fn new(head: &JobDefinition, stored: u32) -> Self {
        StepNumbers { stored, split: head.split, fan_in: head.fan_in }
    }

    /// Returns true if the split has not produced the subtasks yet.
    pub(super) fn is_unsplit(&self) -> bool {
        self.split && self.stored <= 1
    }

    /// Returns true if there is a fan-in with a number.
    fn has_fan_in(&self) -> bool {
        self.fan_in && !self.is_unsplit()
    }

    /// Returns the number of subtasks, without split and fan-in.
    pub(super) fn total(&self) -> u32 {
        self.stored - u32::from(self.split) - u32::from(self.has_fan_in())
    }

    /// Returns the number of a step in the store.
    pub(super) fn number(&self, step: Step) -> SubtaskNumber {
        match step {
            Step::Split => 0,
            Step::Subtask(number) => number + u32::from(self.split),
            Step::FanIn => self.stored - 1,
        }
    }

    /// Returns the step with a number in the store.
    pub(super) fn step(&self, number: SubtaskNumber) -> Step {
        if self.split && number == 0 {
            Step::Split
        } else if self.has_fan_in() && number + 1 == self.stored {
            Step::FanIn
        } else {
            Step::Subtask(number - u32::from(self.split))
        }
    }

    /// Returns the split and the fan-in, as far as they have a number.
    pub(super) fn steps(&self) -> impl Iterator<Item = Step> {
        let split = self.split.then_some(Step::Split);
        split.into_iter().chain(self.has_fan_in().then_some(Step::FanIn))
    }
}

/// Returns the number under which clients see a step. The split and the fan-in have numbers that no
/// subtask has.
pub(super) fn shown(step: Step) -> SubtaskNumber {
    match step {
        Step::Subtask(number) => number,
        Step::Split => SubtaskNumber::MAX,
        Step::FanIn => SubtaskNumber::MAX - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(split: bool, fan_in: bool, stored: u32) -> StepNumbers {
        StepNumbers { stored, split, fan_in }
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
