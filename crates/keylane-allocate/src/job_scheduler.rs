//! Public scheduler type: applies each event to the rules, and records it on request.

use super::record::{Event, Record, RecordedEvent};
use super::rules::SchedulerState;
use super::{Claimant, Decision, End, JobId, JobPolicy, JobProgress, Supply, Take};

/// Shares workers among jobs by the four rules: a pure state machine.
///
/// It has no clock, no lock and no thread: events are calls, [`next`](Self::next) assigns a free
/// worker, and times are numbers in a unit of the caller's choice. A call costs O(log jobs), and
/// allocates only when the number of unfinished jobs exceeds its earlier maximum.
///
/// - A free worker stays free only if no job has a subtask to run, or rule 2 keeps the queued jobs
///   out.
/// - The number of active jobs never exceeds the bound of rule 2. A job that neither runs nor could
///   run does not count.
/// - With [`JobPolicy::Arrival`], an active job with a subtask to run gets a worker before any other
///   job gets its second. With the other [`JobPolicy`]s, this holds for the jobs with a place, and no
///   job is passed over forever.
/// - Assignment is not preemptive: a worker changes jobs only between two subtasks.
///
/// The order of the calls is the order of the events. For events at the same time, report ends
/// before arrivals.
/// ```
/// use keylane_allocate::{JobScheduler, Claimant, End, Rule, Supply};
///
/// let mut scheduler = JobScheduler::new(2);
/// let long = scheduler.submit(Supply::Ready(100), 1, 0);
/// let first = scheduler.next(0).unwrap();
/// assert_eq!((first.to, first.rule), (Claimant::Job(long), Rule::Admit));
/// let second = scheduler.next(0).unwrap();
/// assert_eq!((second.to, second.rule), (Claimant::Job(long), Rule::Least));
/// assert_eq!(scheduler.next(0), None); // both are busy
///
/// let short = scheduler.submit(Supply::Ready(1), 1, 10);
/// scheduler.ended(Claimant::Job(long), End::Done, 60);
/// let third = scheduler.next(60).unwrap();
/// assert_eq!((third.to, third.rule), (Claimant::Job(short), Rule::Admit));
/// ```
#[derive(Clone, Debug)]
pub struct JobScheduler {
    rules: SchedulerState,
    /// Recorded events, if recording is on.
    record: Option<Box<Record>>,
}

impl JobScheduler {
    /// Creates an scheduler for `workers` workers, with at most as many active jobs, in the order
    /// of arrival, and without an ageing bound.
    pub fn new(workers: usize) -> Self {
        JobScheduler { rules: SchedulerState::new(workers), record: None }
    }

    /// Sets the bound of rule 2: the maximum number of active jobs, at least 1. The default, and
    /// `None`, is the number of workers, so that each active job can have one.
    ///
    /// A larger bound starts jobs sooner with fewer workers each: jobs beyond the number of workers
    /// take turns. A smaller one finishes the started jobs first. With any bound, a job beyond it
    /// waits until an active job ends.
    #[must_use]
    pub fn with_max_active(mut self, most: impl Into<Option<usize>>) -> Self {
        self.rules.set_max_active(most.into());
        self
    }

    /// Sets the ageing bound: the longest time that an admitted job is limited to one worker, or a
    /// shorter one to none. After that time it gets the next worker, unless rule 1 needs that
    /// worker, and then the time starts anew.
    #[must_use]
    pub fn with_patience(mut self, patience: u64) -> Self {
        self.rules.set_patience(patience);
        self
    }

    /// Sets the policy. Other [`JobPolicy`]s than arrival limit the active jobs only if a
    /// [bound](Self::with_max_active) is set.
    #[must_use]
    pub fn with_policy(mut self, order: JobPolicy) -> Self {
        self.rules.set_policy(order);
        self
    }

    /// Starts to record the last `capacity` events, decisions included.
    ///
    /// # Panics
    ///
    /// If `capacity` is 0.
    pub fn record(&mut self, capacity: usize) {
        assert!(capacity > 0, "`capacity` of a record is 0; use at least 1");
        self.record = Some(Box::new(Record::new(capacity, self.rules.clone())));
    }

    /// Recorded events, or `None` if recording is off.
    pub fn recorded(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    /// Submits a job. Its `weight` scales its claim to spare workers: a job with twice the weight
    /// and twice the requirement has the same rank. 1 is the default; 0 counts as 1.
    ///
    /// A job without subtasks ends at once: [`progress`](Self::progress) returns `None`.
    pub fn submit(&mut self, supply: Supply, weight: u32, now: u64) -> JobId {
        let at = self.rules.at(now);
        let weight = weight.max(1);
        let job = self.rules.submit(supply, weight);
        self.record_event(at, Event::Submitted { job, supply, weight });
        job
    }

    /// Assigns a free worker. Returns `None` if all workers are busy or no job can use one. The
    /// worker counts as busy until [`ended`](Self::ended).
    pub fn next(&mut self, now: u64) -> Option<Decision> {
        let at = self.rules.at(now);
        let decision = self.rules.decide()?;
        self.record_event(at, Event::Decided(decision));
        Some(decision)
    }

    /// Assigns a free worker to a ready subtask of this job, whatever the rules would choose: it has
    /// come upon that subtask by itself. Does not count as a decision. Returns false if no worker is
    /// free, or the job is paused, not admitted, or has no ready subtask.
    ///
    /// ```
    /// use keylane_allocate::{JobScheduler, Supply};
    ///
    /// let mut scheduler = JobScheduler::new(2);
    /// let job = scheduler.submit(Supply::Ready(3), 1, 0);
    /// assert!(!scheduler.take_ready(job, 0)); // not admitted yet
    /// scheduler.next(0);
    /// assert!(scheduler.take_ready(job, 0));
    /// assert!(!scheduler.take_ready(job, 0)); // both workers are busy
    /// assert_eq!(scheduler.progress(job).unwrap().running, 2);
    /// ```
    pub fn take_ready(&mut self, job: JobId, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_taken = self.rules.take_ready(job);
        if is_taken {
            self.record_event(at, Event::Taken(job));
        }
        is_taken
    }

    /// Records that an assigned worker is free again. Returns true if this ends a job.
    ///
    /// # Panics
    ///
    /// If the recipient has no worker.
    pub fn ended(&mut self, who: Claimant, end: End, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_over = self.rules.ended(who, end);
        self.record_event(at, Event::Ended(who, end));
        is_over
    }

    /// Records further subtasks of the same job that the worker has run beyond the one it was
    /// assigned for; it continues with the last. A worker can so take several subtasks with one
    /// decision, which is equivalent while the job [is alone](Self::is_alone).
    ///
    /// # Panics
    ///
    /// If the job has no worker, or fewer ready subtasks than reported.
    pub fn ran_more(&mut self, job: JobId, take: Take, done: u64, failed: u64, now: u64) {
        let at = self.rules.at(now);
        self.rules.ran_more(job, take, done, failed);
        self.record_event(at, Event::RanMore { job, take, done, failed });
    }

    /// Records that the worker in the splitter has produced `count` subtasks beyond the one it was
    /// assigned for, all of them ready. Ignored if the job is cancelled; the caller then drops
    /// them.
    ///
    /// # Panics
    ///
    /// If the job has no worker.
    pub fn split_more(&mut self, job: JobId, count: u64, now: u64) {
        let at = self.rules.at(now);
        self.rules.split_more(job, count);
        self.record_event(at, Event::SplitMore(job, count));
    }

    /// Records that the job's splitter is exhausted, so that it is not called again. Returns true
    /// if this ends the job.
    pub fn exhausted(&mut self, job: JobId, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_over = self.rules.exhausted(job);
        self.record_event(at, Event::Exhausted(job));
        is_over
    }

    /// Records that `count` waiting subtasks of a job have become ready. Returns false if the job
    /// has ended or is cancelled.
    ///
    /// # Panics
    ///
    /// If fewer than `count` subtasks wait.
    pub fn ready(&mut self, job: JobId, count: u64, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.ready(job, count);
        self.record_event(at, Event::Ready(job, count));
        is_live
    }

    /// Records that `count` ready subtasks of a job wait again, because one of their keys was
    /// paused. Returns false if the job has ended or is cancelled.
    ///
    /// # Panics
    ///
    /// If fewer than `count` subtasks are ready.
    pub fn unready(&mut self, job: JobId, count: u64, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.unready(job, count);
        self.record_event(at, Event::Unready(job, count));
        is_live
    }

    /// Adds subtasks to a job: `ready` and `waiting` ones. They count against the expected number
    /// of its splitter, if it has one. A job ends with its last subtask, so while subtasks are
    /// still to be added, one must wait or the splitter must be open. Returns false if the job has
    /// ended or is cancelled.
    ///
    /// ```
    /// use keylane_allocate::{JobScheduler, Supply};
    ///
    /// let mut scheduler = JobScheduler::new(1);
    /// let job = scheduler.submit(Supply::Lined { ready: 0, waiting: 1 }, 1, 0);
    /// assert!(scheduler.next(0).is_none());
    /// assert!(scheduler.came(job, 1, 1, 0));
    /// assert!(scheduler.next(0).is_some());
    /// assert_eq!(scheduler.progress(job).unwrap().waiting, 2);
    /// ```
    pub fn came(&mut self, job: JobId, ready: u64, waiting: u64, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.came(job, ready, waiting);
        self.record_event(at, Event::Came { job, ready, waiting });
        is_live
    }

    /// Records that a waiting subtask ended without a worker, as a future does. Returns false if
    /// the job has ended or is cancelled.
    ///
    /// # Panics
    ///
    /// If no subtask waits.
    pub fn settled(&mut self, job: JobId, failed: bool, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.settled(job, failed);
        self.record_event(at, Event::Settled(job, failed));
        is_live
    }

    /// Pauses a job's splitter, because enough of its subtasks wait, or resumes it. Ready subtasks
    /// still run. Returns false if the job has ended or is cancelled.
    pub fn hold_splitter(&mut self, job: JobId, held: bool, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.set_splitter_paused(job, held);
        self.record_event(at, Event::Held(job, held));
        is_live
    }

    /// Pauses a job: none of its subtasks starts until it is resumed. Running ones continue. A
    /// queued job keeps its position. Returns false if the job has ended or is cancelled.
    pub fn pause(&mut self, job: JobId, now: u64) -> bool {
        self.set_paused(job, true, now)
    }

    /// Undoes [`pause`](Self::pause). Returns false if the job has ended or is cancelled.
    pub fn resume(&mut self, job: JobId, now: u64) -> bool {
        self.set_paused(job, false, now)
    }

    fn set_paused(&mut self, job: JobId, paused: bool, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.pause(job, paused);
        self.record_event(at, Event::Paused(job, paused));
        is_live
    }

    /// Cancels a job: none of its subtasks starts any more, and waiting ones are discarded. The job
    /// ends with its running subtasks. Returns false if it has ended or was cancelled before.
    pub fn cancel(&mut self, job: JobId, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.cancel(job);
        self.record_event(at, Event::Cancelled(job));
        is_live
    }

    /// Changes a job's weight. Returns false if the job has ended or is cancelled.
    pub fn set_weight(&mut self, job: JobId, weight: u32, now: u64) -> bool {
        let at = self.rules.at(now);
        let weight = weight.max(1);
        let is_live = self.rules.set_weight(job, weight);
        self.record_event(at, Event::Weighed(job, weight));
        is_live
    }

    /// Sets whether any work outside jobs is ready. Each of its tasks shares like a job with one
    /// subtask.
    pub fn loose_ready(&mut self, ready: bool, now: u64) {
        let at = self.rules.at(now);
        self.rules.loose_ready(ready);
        self.record_event(at, Event::LooseReady(ready));
    }

    /// Changes the number of workers. If more are busy, none is assigned until enough have ended.
    /// Admitted jobs stay admitted.
    pub fn resize(&mut self, workers: usize, now: u64) {
        let at = self.rules.at(now);
        self.rules.resize(workers);
        self.record_event(at, Event::Resized(workers));
    }

    /// Changes the bound of rule 2. Active jobs stay active.
    pub fn set_max_active(&mut self, most: Option<usize>, now: u64) {
        let at = self.rules.at(now);
        self.rules.set_max_active(most);
        self.record_event(at, Event::Bounded(most));
    }

    /// Returns whether [`next`](Self::next) would assign a worker now.
    pub fn could_decide(&self) -> bool {
        self.rules.could_decide()
    }

    /// Returns whether [`next`](Self::next) would assign a worker if one were free.
    pub fn has_offer(&self) -> bool {
        self.rules.has_offer()
    }

    /// Returns the recipient that [`next`](Self::next) would choose. A caller with its own reasons
    /// why that job cannot use a worker now can [`pause`](Self::pause) it and ask again.
    ///
    /// ```
    /// use keylane_allocate::{JobScheduler, Claimant, Supply};
    ///
    /// let mut scheduler = JobScheduler::new(1);
    /// let [first, second] = [(); 2].map(|()| scheduler.submit(Supply::Ready(1), 1, 0));
    /// assert_eq!(scheduler.peek(0), Some(Claimant::Job(first)));
    /// scheduler.pause(first, 0);
    /// assert_eq!(scheduler.peek(0), Some(Claimant::Job(second)));
    /// assert_eq!(scheduler.next(0).unwrap().to, Claimant::Job(second));
    /// ```
    pub fn peek(&mut self, now: u64) -> Option<Claimant> {
        self.rules.at(now);
        self.rules.peek()
    }

    /// Last value set for the work outside jobs.
    #[inline]
    pub fn is_loose_ready(&self) -> bool {
        self.rules.is_loose_ready()
    }

    /// Progress of a job, or `None` if it has ended.
    pub fn progress(&self, job: JobId) -> Option<JobProgress> {
        self.rules.progress(job)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.rules.workers()
    }

    /// Number of assigned workers.
    pub fn busy(&self) -> usize {
        self.rules.busy()
    }

    /// Number of admitted jobs that run or could run.
    pub fn active(&self) -> usize {
        self.rules.active()
    }

    /// Number of jobs that have not ended, queued ones included.
    pub fn unfinished(&self) -> usize {
        self.rules.unfinished()
    }

    /// Returns whether this job would get every free worker until the next event: it is the only
    /// job, and no work outside jobs is ready.
    pub fn is_alone(&self, job: JobId) -> bool {
        self.rules.is_alone(job)
    }

    fn record_event(&mut self, at: u64, event: Event) {
        if let Some(record) = &mut self.record {
            record.push(RecordedEvent { at, event });
        }
    }
}
