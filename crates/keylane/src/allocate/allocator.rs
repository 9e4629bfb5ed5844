//! The public face of the rules: says what each event means, and records it if asked.

use super::record::{Entry, Event, Record};
use super::rules::SchedulerState;
use super::{Claimant, Decision, End, JobId, Order, Progress, Supply, Take};

/// Shares workers among jobs by the four rules: a plain state machine.
///
/// It has no clock, no lock and no thread: events go in as calls, [`next`](Self::next) says who gets a
/// free worker, and times are plain numbers in whatever unit the caller likes. A call costs
/// O(log jobs), and allocates only when there are more unfinished jobs than ever before.
///
/// - A free worker stays free only if nobody offers anything, or rule 2 keeps a job out.
/// - No more jobs are active than rule 2 allows. A job that neither runs nor could run is not
///   counted: it keeps nobody out.
/// - In the order of arrival, an active job that has something to do gets a worker before any other gets its
///   second. In the other [`Order`]s, so do those who have a place, and nobody is passed over for ever.
/// - Nothing is taken away: a worker changes jobs only between two subtasks.
///
/// The order of the calls is the order of the events. Of several at the same time, call those of
/// ends before those of arrivals.
///
/// ```
/// use keylane::allocate::{Allocator, Claimant, End, Rule, Supply};
///
/// let mut allocator = Allocator::new(2);
/// let long = allocator.submit(Supply::Ready(100), 1, 0);
/// let first = allocator.next(0).unwrap();
/// assert_eq!((first.to, first.rule), (Claimant::Job(long), Rule::Admit));
/// let second = allocator.next(0).unwrap();
/// assert_eq!((second.to, second.rule), (Claimant::Job(long), Rule::Least));
/// assert_eq!(allocator.next(0), None); // both are busy
///
/// let short = allocator.submit(Supply::Ready(1), 1, 10);
/// allocator.ended(Claimant::Job(long), End::Done, 60);
/// let third = allocator.next(60).unwrap();
/// assert_eq!((third.to, third.rule), (Claimant::Job(short), Rule::Admit));
/// ```
#[derive(Clone, Debug)]
pub struct Allocator {
    rules: SchedulerState,
    /// If somebody wants to know.
    record: Option<Box<Record>>,
}

impl Allocator {
    /// For so many workers, with as many active jobs at most, in the order of arrival, and without an
    /// ageing bound.
    pub fn new(workers: usize) -> Self {
        Allocator { rules: SchedulerState::new(workers), record: None }
    }

    /// With rule 2's bound: how many jobs may be active at a time, at least one. Without it, or with
    /// `None`, as many as there are workers, so that each active job can have one.
    ///
    /// A larger bound begins jobs sooner and gives them less: those beyond the number of workers take
    /// turns. A smaller one finishes what was begun first. Whatever the bound, the job after the last
    /// that it lets in waits until one of them is over.
    #[must_use]
    pub fn with_max_active(mut self, most: impl Into<Option<usize>>) -> Self {
        self.rules.bound(most.into());
        self
    }

    /// With an ageing bound on how long an admitted job can be held at one worker, or at none for
    /// shorter jobs. When it has been for so long, it gets the next worker, unless rule 1 has a use for
    /// that, and after the bound again another.
    #[must_use]
    pub fn with_patience(mut self, patience: u64) -> Self {
        self.rules.wait_at_most(patience);
        self
    }

    /// Serves the jobs in another [`Order`] than by their arrival. In those, active jobs are bounded
    /// only if [told to](Self::with_max_active).
    #[must_use]
    pub fn with_order(mut self, order: Order) -> Self {
        self.rules.serve_by(order);
        self
    }

    /// Records the last `capacity` events from now on, and which decisions they led to.
    ///
    /// # Panics
    ///
    /// If `capacity` is zero.
    pub fn record(&mut self, capacity: usize) {
        assert!(capacity > 0, "a record without room records nothing");
        self.record = Some(Box::new(Record::new(capacity, self.rules.clone())));
    }

    /// What was recorded.
    pub fn recorded(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    /// A job comes. Its `weight` scales its claim to spare workers: one with twice the weight and
    /// twice the requirement ranks the same. 1 is what everybody has; 0 counts as 1.
    ///
    /// A job without subtasks is over at once: [`progress`](Self::progress) has nothing on it.
    pub fn submit(&mut self, supply: Supply, weight: u32, now: u64) -> JobId {
        let at = self.rules.at(now);
        let weight = weight.max(1);
        let job = self.rules.submit(supply, weight);
        self.note(at, Event::Submitted { job, supply, weight });
        job
    }

    /// Who gets a free worker, if there is one and anybody has use for it. The worker counts as
    /// theirs until [`ended`](Self::ended).
    pub fn next(&mut self, now: u64) -> Option<Decision> {
        let at = self.rules.at(now);
        let decision = self.rules.decide()?;
        self.note(at, Event::Decided(decision));
        Some(decision)
    }

    /// A worker that was given to somebody is free again. True if a job is over with that.
    ///
    /// # Panics
    ///
    /// If nobody has a worker there that could end.
    pub fn ended(&mut self, who: Claimant, end: End, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_over = self.rules.ended(who, end);
        self.note(at, Event::Ended(who, end));
        is_over
    }

    /// The worker of a job has, beyond the subtask that it was given for, run so many more of the
    /// same job, and goes on with the last. So a worker can take several at a time and ask once,
    /// which is what the rules would have said as long as the job [is alone](Self::is_alone).
    ///
    /// # Panics
    ///
    /// If the job has no worker, or had not so many that were ready.
    pub fn ran_more(&mut self, job: JobId, take: Take, done: u64, failed: u64, now: u64) {
        let at = self.rules.at(now);
        self.rules.ran_more(job, take, done, failed);
        self.note(at, Event::RanMore { job, take, done, failed });
    }

    /// The worker that was told to split has made so many more than the one that it was given for, and
    /// they are ready. Nothing is done if the job is cancelled; whoever has them drops them.
    ///
    /// # Panics
    ///
    /// If the job has no worker.
    pub fn split_more(&mut self, job: JobId, count: u64, now: u64) {
        let at = self.rules.at(now);
        self.rules.split_more(job, count);
        self.note(at, Event::SplitMore(job, count));
    }

    /// The job's splitter is known to have no more, so that it needs not be asked once more. True if
    /// the job is over with that.
    pub fn exhausted(&mut self, job: JobId, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_over = self.rules.exhausted(job);
        self.note(at, Event::Exhausted(job));
        is_over
    }

    /// So many of a job's subtasks that waited can start. False if the job is over or cancelled.
    ///
    /// # Panics
    ///
    /// If fewer waited.
    pub fn ready(&mut self, job: JobId, count: u64, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.ready(job, count);
        self.note(at, Event::Ready(job, count));
        is_live
    }

    /// So many of a job's subtasks that could start can't any more, and wait: a key of theirs was paused.
    /// False if the job is over or cancelled.
    ///
    /// # Panics
    ///
    /// If fewer were ready.
    pub fn unready(&mut self, job: JobId, count: u64, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.unready(job, count);
        self.note(at, Event::Unready(job, count));
        is_live
    }

    /// More of a job's subtasks have come: so many that can start, and so many that wait. They are taken
    /// from what its splitter is expected to make, if it has one. A job is over when its last subtask has
    /// ended, so what is still to come must be known by something that waits, or by a splitter. False if the
    /// job is over or cancelled.
    ///
    /// ```
    /// use keylane::allocate::{Allocator, Supply};
    ///
    /// let mut allocator = Allocator::new(1);
    /// let job = allocator.submit(Supply::Lined { ready: 0, waiting: 1 }, 1, 0);
    /// assert!(allocator.next(0).is_none());
    /// assert!(allocator.came(job, 1, 1, 0));
    /// assert!(allocator.next(0).is_some());
    /// assert_eq!(allocator.progress(job).unwrap().waiting, 2);
    /// ```
    pub fn came(&mut self, job: JobId, ready: u64, waiting: u64, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.came(job, ready, waiting);
        self.note(at, Event::Came { job, ready, waiting });
        is_live
    }

    /// A subtask that waited ended without needing a worker again, as a future does. False if the
    /// job was over or cancelled.
    ///
    /// # Panics
    ///
    /// If none waited.
    pub fn settled(&mut self, job: JobId, failed: bool, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.settled(job, failed);
        self.note(at, Event::Settled(job, failed));
        is_live
    }

    /// Holds a job's splitter back, because enough of its subtasks wait, or lets it go on. What is
    /// ready is offered all the same. False if the job is over or cancelled.
    pub fn hold_splitter(&mut self, job: JobId, held: bool, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.hold(job, held);
        self.note(at, Event::Held(job, held));
        is_live
    }

    /// Begins none of a job's subtasks until it is resumed. Those that run end. A job in the line
    /// keeps its place. False if the job is over or cancelled.
    pub fn pause(&mut self, job: JobId, now: u64) -> bool {
        self.set_paused(job, true, now)
    }

    /// Undoes [`pause`](Self::pause).
    pub fn resume(&mut self, job: JobId, now: u64) -> bool {
        self.set_paused(job, false, now)
    }

    fn set_paused(&mut self, job: JobId, paused: bool, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.pause(job, paused);
        self.note(at, Event::Paused(job, paused));
        is_live
    }

    /// Begins none of a job's subtasks any more, and forgets those that wait. The job is over when
    /// those that run have ended. False if it was over or cancelled before.
    pub fn cancel(&mut self, job: JobId, now: u64) -> bool {
        let at = self.rules.at(now);
        let is_live = self.rules.cancel(job);
        self.note(at, Event::Cancelled(job));
        is_live
    }

    /// Changes a job's weight. False if the job is over or cancelled.
    pub fn set_weight(&mut self, job: JobId, weight: u32, now: u64) -> bool {
        let at = self.rules.at(now);
        let weight = weight.max(1);
        let is_live = self.rules.reweigh(job, weight);
        self.note(at, Event::Weighed(job, weight));
        is_live
    }

    /// Says whether any work outside jobs could start now. It shares as if each task were a job of
    /// its own, with one subtask.
    pub fn loose_ready(&mut self, ready: bool, now: u64) {
        let at = self.rules.at(now);
        self.rules.loose_ready(ready);
        self.note(at, Event::LooseReady(ready));
    }

    /// There are so many workers from now on. If more are busy, nothing is given until enough of them
    /// have ended. No job is sent back to the line.
    pub fn resize(&mut self, workers: usize, now: u64) {
        let at = self.rules.at(now);
        self.rules.resize(workers);
        self.note(at, Event::Resized(workers));
    }

    /// Changes rule 2's bound. Jobs that are active stay so.
    pub fn set_max_active(&mut self, most: Option<usize>, now: u64) {
        let at = self.rules.at(now);
        self.rules.bound(most);
        self.note(at, Event::Bounded(most));
    }

    /// Whether [`next`](Self::next) would give a worker to somebody, if it were asked now.
    pub fn could_decide(&self) -> bool {
        self.rules.could_decide()
    }

    /// Whom [`next`](Self::next) would give a worker. For a caller that knows of reasons of its own why
    /// somebody can't use one now: it can [`pause`](Self::pause) that job and ask again.
    ///
    /// ```
    /// use keylane::allocate::{Allocator, Claimant, Supply};
    ///
    /// let mut allocator = Allocator::new(1);
    /// let [first, second] = [(); 2].map(|()| allocator.submit(Supply::Ready(1), 1, 0));
    /// assert_eq!(allocator.peek(0), Some(Claimant::Job(first)));
    /// allocator.pause(first, 0);
    /// assert_eq!(allocator.peek(0), Some(Claimant::Job(second)));
    /// assert_eq!(allocator.next(0).unwrap().to, Claimant::Job(second));
    /// ```
    pub fn peek(&mut self, now: u64) -> Option<Claimant> {
        self.rules.at(now);
        self.rules.peek()
    }

    /// What was last said of the work outside jobs.
    pub(crate) fn is_loose_ready(&self) -> bool {
        self.rules.is_loose_ready()
    }

    /// How far a job is; nothing if it is over.
    pub fn progress(&self, job: JobId) -> Option<Progress> {
        self.rules.progress(job)
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.rules.workers()
    }

    /// How many of them were given to somebody.
    pub fn busy(&self) -> usize {
        self.rules.busy()
    }

    /// How many admitted jobs run, or could.
    pub fn active(&self) -> usize {
        self.rules.active()
    }

    /// How many jobs are not over, those in the line included.
    pub fn unfinished(&self) -> usize {
        self.rules.unfinished()
    }

    /// Whether this job would get every free worker as long as nobody says anything else: there is
    /// no other job, and no loose work.
    pub fn is_alone(&self, job: JobId) -> bool {
        self.rules.is_alone(job)
    }

    fn note(&mut self, at: u64, event: Event) {
        if let Some(record) = &mut self.record {
            record.note(Entry { at, event });
        }
    }
}
