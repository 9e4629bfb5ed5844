//! Checker of histories of submissions: an order of them exists if and only if "returned before the
//! call of" and "ran before a conflicting task of" have no cycle.

/// Keys of a task. A barrier conflicts with all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Keys {
    Some(Vec<u32>),
    All,
}

impl Keys {
    fn conflicts(&self, other: &Keys) -> bool {
        match (self, other) {
            (Keys::Some(own), Keys::Some(other)) => own.iter().any(|key| other.contains(key)),
            (Keys::All, _) | (_, Keys::All) => true,
        }
    }
}

/// Record of a submission: its tasks in order, and the times of its call and its return.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) tasks: Vec<Task>,
    pub(crate) call: usize,
    pub(crate) ret: usize,
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) keys: Keys,
    pub(crate) is_latest: bool,
    /// Times of its begin and its end. Absent if it was replaced.
    pub(crate) run: Option<(usize, usize)>,
}

/// Returns a contradiction in a history, if there is one.
pub(crate) fn contradiction(history: &[Submission]) -> Option<String> {
    for (at, submission) in history.iter().enumerate() {
        if let Some(wrong) = wrong_within(submission) {
            return Some(format!("submission {at}: {wrong}"));
        }
        for task in submission.tasks.iter().filter(|task| task.run.is_none()) {
            let replaces = |other: &Submission| {
                let is_later = other.ret > submission.call;
                let fits = |it: &Task| it.is_latest && it.keys == task.keys && it.run.is_some();
                is_later && other.tasks.iter().any(fits)
            };
            if !task.is_latest || !history.iter().any(replaces) {
                return Some(format!("submission {at}: a task did not run"));
            }
        }
    }
    let mut before = vec![vec![false; history.len()]; history.len()];
    for a in 0..history.len() {
        for b in 0..history.len() {
            if a != b {
                match runs_before(&history[a], &history[b]) {
                    Ok(runs) => before[a][b] = runs || history[a].ret < history[b].call,
                    Err(wrong) => return Some(format!("submissions {a} and {b}: {wrong}")),
                }
            }
        }
    }
    cycle(&before).map(|cycle| format!("a cycle of submissions: {cycle:?}"))
}

/// Tasks of one batch run in the order of the batch.
fn wrong_within(submission: &Submission) -> Option<String> {
    let ran: Vec<_> =
        submission.tasks.iter().filter_map(|task| Some((&task.keys, task.run?))).collect();
    for (at, (keys, (_, end))) in ran.iter().enumerate() {
        for (others, (begin, _)) in &ran[at + 1..] {
            if keys.conflicts(others) && begin < end {
                return Some(format!("{others:?} began before {keys:?} had ended"));
            }
        }
    }
    None
}

/// Returns whether a task of `a` ran before a conflicting one of `b`.
fn runs_before(a: &Submission, b: &Submission) -> Result<bool, String> {
    let mut is_before = false;
    for one in &a.tasks {
        for other in b.tasks.iter().filter(|other| one.keys.conflicts(&other.keys)) {
            if let (Some(one), Some(other)) = (one.run, other.run) {
                if one.0 < other.1 && other.0 < one.1 {
                    return Err("conflicting tasks ran at the same time".to_owned());
                }
                is_before |= one.1 < other.0;
            }
        }
    }
    Ok(is_before)
}

/// Returns the nodes of a cycle, by removing nodes without predecessors.
fn cycle(before: &[Vec<bool>]) -> Option<Vec<usize>> {
    let mut left: Vec<usize> = (0..before.len()).collect();
    while !left.is_empty() {
        let is_first = |node: &usize| left.iter().all(|other| !before[*other][*node]);
        match left.iter().position(is_first) {
            Some(first) => _ = left.swap_remove(first),
            None => return Some(left),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(keys: &[u32], run: (usize, usize)) -> Task {
        Task { keys: Keys::Some(keys.to_vec()), is_latest: false, run: Some(run) }
    }

    fn latest(key: u32, run: Option<(usize, usize)>) -> Task {
        Task { keys: Keys::Some(vec![key]), is_latest: true, run }
    }

    fn submission(call: usize, ret: usize, tasks: Vec<Task>) -> Submission {
        Submission { tasks, call, ret }
    }

    #[test]
    fn simultaneous_submissions_have_either_order() {
        let history = [
            submission(0, 3, vec![task(&[1], (6, 7))]),
            submission(1, 2, vec![task(&[1], (4, 5))]),
        ];
        assert_eq!(contradiction(&history), None);
    }

    #[test]
    fn an_order_against_time_is_found() {
        let history = [
            submission(0, 1, vec![task(&[1], (6, 7))]),
            submission(2, 3, vec![task(&[1], (4, 5))]),
        ];
        assert!(contradiction(&history).is_some());
    }

    #[test]
    fn two_rollups_in_different_orders_are_found() {
        // Each is first in one of the keys, which single tasks show.
        let history = [
            submission(0, 9, vec![task(&[1], (10, 11)), task(&[2], (16, 17))]),
            submission(1, 8, vec![task(&[1], (12, 13)), task(&[2], (14, 15))]),
        ];
        assert!(contradiction(&history).is_some());
    }

    #[test]
    fn an_overlap_and_a_batch_out_of_order_are_found() {
        let overlap = [
            submission(0, 3, vec![task(&[1], (4, 6))]),
            submission(1, 2, vec![task(&[1, 2], (5, 7))]),
        ];
        assert!(contradiction(&overlap).is_some());
        let batch = [submission(0, 1, vec![task(&[1], (4, 5)), task(&[1], (2, 3))])];
        assert!(contradiction(&batch).is_some());
    }

    #[test]
    fn a_latest_task_without_a_successor_is_found() {
        let before = submission(0, 1, vec![latest(1, Some((2, 3)))]);
        let lost = submission(4, 5, vec![latest(1, None)]);
        assert!(contradiction(&[before, lost]).is_some());
        let replaced = submission(0, 1, vec![latest(1, None)]);
        let newest = submission(2, 3, vec![latest(1, Some((4, 5)))]);
        assert_eq!(contradiction(&[replaced, newest]), None);
    }
}
