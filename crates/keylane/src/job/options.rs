//! Options of a job: what a failure means, and in which order results come.

/// Policy for a failed subtask: one that returns an error or panics.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum OnError {
    /// Subtasks that have not started are dropped, and the job ends with the running ones.
    FailFast,
    /// The others continue. If failures are not [folded](crate::Subtasks::fold_outcomes), the first one is
    /// the outcome of the job at the end.
    FinishAll,
}

/// Order in which results are folded or collected.
///
/// In both orders, the results of subtasks with a common key that they do not merely share come in
/// the order in which the subtasks were split, because a result is taken before the turn of its
/// subtask ends.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ResultOrder {
    /// Order in which the subtasks end: the default of a fold.
    Completion,
    /// Order in which the splitter has produced the subtasks: the default of a collection. In a
    /// fold, at most some hundred results wait for an earlier one; the splitter is paused
    /// meanwhile.
    Submission,
}
