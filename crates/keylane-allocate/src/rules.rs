//! The four rules as a pure state machine: events in, decisions out, always the same for the same
//! events.

use super::indexed_heap::IndexedHeap;
use super::job::{EventTime, JobRank, ScheduledJob, Splitter};
use super::{Claimant, Decision, End, JobId, JobPolicy, JobProgress, Rule, Supply, Take};

/// Slot in the id of a job that ended at its submission.
const NO_SLOT: u32 = u32::MAX;

/// Work outside jobs, as one stream: only the presence of ready tasks is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LooseWork {
    pub(super) ready: bool,
    pub(super) running: usize,
    /// Set while a task is ready and none runs: the start of this state, ordered with that of the
    /// jobs.
    pub(super) needs_since: Option<EventTime>,
    /// Set if the last admission by rule 2 was a task outside jobs: the next one is the queue's.
    pub(super) had_its_turn: bool,
    /// Set if the last decision was for this stream.
    pub(super) was_last: bool,
}

/// A job's slot, or `None` for the work outside jobs, with the rule.
type JobChoice = (Option<u32>, Rule);

/// State of the scheduler. Two states with the same events make the same decisions.
#[derive(Clone, Debug)]
pub(super) struct SchedulerState {
    pub(super) workers: usize,
    /// Bound of rule 2; `None` for the number of workers.
    pub(super) max_active: Option<usize>,
    /// Ageing bound: the longest time that a job is limited to one worker, or a shorter job to
    /// none.
    pub(super) patience: Option<u64>,
    pub(super) order: JobPolicy,
    /// Consecutive decisions that passed over all waiting jobs. Not counted with `JobPolicy::Arrival`.
    pub(super) passed_over: u32,
    /// Number of assigned workers.
    busy: usize,
    /// Number of jobs that count against the bound of rule 2.
    active: usize,
    /// Latest time of any event. Callers read their clocks before they take their lock, so times
    /// may arrive slightly out of order.
    pub(super) now: u64,
    /// Number of jobs submitted.
    pub(super) serials: u64,
    /// Set if the last decision admitted a queued job: jobs that need their first worker are next.
    pub(super) queue_had_its_turn: bool,
    /// Sequence number of the last `needs_since`.
    pub(super) needs: u64,
    /// Unfinished jobs, by slot.
    pub(super) jobs: Vec<Option<ScheduledJob>>,
    pub(super) free: Vec<u32>,
    pub(super) loose: LooseWork,
    /// Queued jobs that could start, the oldest first.
    queue: IndexedHeap<EventTime>,
    /// Queued jobs that could start, the least requirement first. Maintained only for the policies
    /// that use it.
    queue_by_rank: IndexedHeap<JobRank>,
    /// Admitted jobs with a subtask to run and no worker, the longest so first.
    without_worker: IndexedHeap<EventTime>,
    /// Admitted jobs with a subtask to run and at most one worker, the longest so first; of equals,
    /// the older.
    at_one_worker: IndexedHeap<EventTime>,
    /// Admitted jobs with a subtask to run, the least requirement first.
    least: IndexedHeap<JobRank>,
}

impl SchedulerState {
    pub(super) fn new(workers: usize) -> Self {
        SchedulerState {
            workers,
            max_active: None,
            patience: None,
            order: JobPolicy::Arrival,
            passed_over: 0,
            busy: 0,
            active: 0,
            now: 0,
            serials: 0,
            queue_had_its_turn: false,
            needs: 0,
            jobs: Vec::new(),
            free: Vec::new(),
            loose: LooseWork::default(),
            queue: IndexedHeap::new(),
            queue_by_rank: IndexedHeap::new(),
            without_worker: IndexedHeap::new(),
            at_one_worker: IndexedHeap::new(),
            least: IndexedHeap::new(),
        }
    }

    /// Restores a recorded state. Returns `None` unless each slot occurs exactly once.
    pub(super) fn restore(
        &mut self,
        jobs: Vec<(u32, ScheduledJob)>,
        free: Vec<u32>,
        loose: LooseWork,
    ) -> Option<()> {
        let slots = jobs.len() + free.len();
        let mut seen = vec![false; slots];
        for slot in jobs.iter().map(|(slot, _)| *slot).chain(free.iter().copied()) {
            let seen = seen.get_mut(slot as usize)?;
            if std::mem::replace(seen, true) {
                return None;
            }
        }
        (0..slots).for_each(|_| _ = self.add_slot());
        self.free = free;
        self.busy = loose.running + jobs.iter().map(|(_, job)| job.running as usize).sum::<usize>();
        self.loose = loose;
        for (slot, job) in jobs {
            self.active += usize::from(job.counts_as_active());
            self.jobs[slot as usize] = Some(job);
            self.change(slot, |_| {});
        }
        Some(())
    }

    /// Assigns a free worker, if there is one and a job can use it.
    pub(super) fn decide(&mut self) -> Option<Decision> {
        if self.busy >= self.workers {
            return None;
        }
        let (to, rule) = self.choose()?;
        self.queue_had_its_turn = rule == Rule::Admit && to.is_some();
        self.loose.was_last = to.is_none();
        self.count_passed_over(to);
        Some(match to {
            Some(slot) => self.assign_to_job(slot, rule),
            None => self.assign_to_loose(rule),
        })
    }

    /// Returns whether `decide` would assign a worker.
    pub(super) fn could_decide(&self) -> bool {
        self.peek().is_some()
    }

    /// Returns whether a job could use a worker, if one were free.
    pub(super) fn has_offer(&self) -> bool {
        // Each start and end asks this for each priority, so it does not look for the job.
        let has_admitted = self.least.first().is_some();
        let has_queued = || self.queue.first().is_some() && self.can_admit();
        let offers = has_admitted || self.loose.ready || has_queued();
        debug_assert_eq!(offers, self.choose().is_some());
        offers
    }

    /// Returns the recipient that `decide` would choose.
    pub(super) fn peek(&self) -> Option<Claimant> {
        let (to, _) = (self.busy < self.workers).then(|| self.choose())??;
        Some(match to {
            Some(slot) => Claimant::Job(JobId { serial: self.job(slot).serial, slot }),
            None => Claimant::Loose,
        })
    }

    fn choose(&self) -> Option<JobChoice> {
        match self.order {
            JobPolicy::Arrival => self.choose_by_arrival(),
            JobPolicy::Balanced | JobPolicy::Shortest => self.choose_by_length(),
        }
    }

    fn choose_by_arrival(&self) -> Option<JobChoice> {
        self.admit_beyond_workers()
            .or_else(|| self.keep())
            .or_else(|| self.aged())
            .or_else(|| self.admit())
            .or_else(|| self.least.first().map(|(_, slot)| (Some(slot), Rule::Least)))
    }

    /// Rule 2 where it would admit more jobs than workers, the work outside jobs counted as one:
    /// with a larger bound, or when that work has the last worker. Admitted jobs get their worker
    /// back by rule 1 after every subtask, so no job would ever be admitted if rule 1 always came
    /// first. If rule 2 always came first, admitted jobs would starve under a flood of new ones. So
    /// the two alternate.
    fn admit_beyond_workers(&self) -> Option<JobChoice> {
        let (_, slot) = self.queue.first().filter(|_| self.can_admit())?;
        let loose = usize::from(self.loose.ready || self.loose.running > 0);
        let is_beyond = self.active + loose >= self.workers;
        (is_beyond && !self.queue_had_its_turn).then_some((Some(slot), Rule::Admit))
    }

    /// Rule 1.
    fn keep(&self) -> Option<JobChoice> {
        let to = match (self.without_worker.first(), self.loose.needs_since) {
            (Some((since, _)), Some(loose_since)) if loose_since < since => None,
            (Some((_, slot)), _) => Some(slot),
            (None, Some(_)) => None,
            (None, None) => return None,
        };
        Some((to, Rule::Keep))
    }

    fn aged(&self) -> Option<JobChoice> {
        let ((since, _), slot) = self.at_one_worker.first()?;
        self.has_aged(since).then_some((Some(slot), Rule::Aged))
    }

    /// Rule 2. A task outside jobs counts as a job with one subtask, admitted and assigned in one
    /// step. It is not bounded: a subtask of an admitted job may wait behind it for a key, and
    /// neither would progress if it had to wait for an admitted job to end.
    fn admit(&self) -> Option<JobChoice> {
        let job = self.queue.first().filter(|_| self.can_admit()).map(|(_, slot)| slot);
        let to = match (job, self.loose.ready) {
            (Some(slot), true) => self.loose.had_its_turn.then_some(slot),
            (Some(slot), false) => Some(slot),
            (None, true) => None,
            (None, false) => return None,
        };
        Some((to, Rule::Admit))
    }

    /// Policies other than arrival. Tasks outside jobs have the least requirement, and so go first;
    /// where a job waits for a worker too, the two alternate.
    fn choose_by_length(&self) -> Option<JobChoice> {
        let job = self.choose_job_by_length();
        let loose_needs_worker = self.loose.needs_since.is_some();
        let job_waits = |slot| self.job(slot).running == 0;
        match job {
            _ if !self.loose.ready => job,
            Some((Some(slot), rule))
                if (rule == Rule::Aged || job_waits(slot))
                    && (!loose_needs_worker || self.loose.was_last) =>
            {
                job
            }
            _ if loose_needs_worker => Some((None, Rule::Keep)),
            _ => Some((None, Rule::Admit)),
        }
    }

    /// Chooses the next job: an aged one; else one with a place and no worker; else the one with
    /// the least requirement. After `JobPolicy::TURN` decisions, the one that has waited longest.
    fn choose_job_by_length(&self) -> Option<JobChoice> {
        if let Some(aged) = self.aged() {
            return Some(aged);
        }
        let oldest = self.queue.first().filter(|_| self.can_admit());
        if let Some(((arrival, _), slot)) = oldest
            && self.has_aged(arrival)
        {
            return Some((Some(slot), Rule::Admit));
        }
        let [first, second] = self.shortest_two();
        let first = first?;
        if self.passed_over >= JobPolicy::TURN - 1
            && let Some(slot) = self.longest_waiting()
        {
            let rule = if self.job(slot).admitted { Rule::Aged } else { Rule::Admit };
            return Some((Some(slot), rule));
        }
        let has_two = self.order.places(self.workers) == 2;
        let second = second.filter(|&slot| has_two && self.job(slot).running == 0);
        let (slot, rule) = match second {
            Some(slot) if self.job(first).running > 0 => (slot, Rule::Keep),
            _ => (first, Rule::Least),
        };
        let rule = if self.job(slot).admitted { rule } else { Rule::Admit };
        Some((Some(slot), rule))
    }

    /// Two jobs with the least requirement of all that could get a worker, queued or admitted.
    fn shortest_two(&self) -> [Option<u32>; 2] {
        let [one, two] = self.least.first_two();
        let [three, four] = match self.can_admit() {
            true => self.queue_by_rank.first_two(),
            false => [None, None],
        };
        // Each of the two pairs is already sorted.
        let mut all =
            [one, two, three, four].map(|it| it.map_or((true, None), |it| (false, Some(it))));
        all.sort_unstable();
        [all[0].1, all[1].1].map(|it| it.map(|(_, slot)| slot))
    }

    /// Job that has waited longest for a worker, of those that could get one and have none.
    fn longest_waiting(&self) -> Option<u32> {
        let without_worker = self.without_worker.first().map(|((since, _), slot)| (since, slot));
        let queued = self.queue.first().filter(|_| self.can_admit());
        let queued = queued.map(|((since, _), slot)| (since, slot));
        match (without_worker, queued) {
            (Some((without_worker, slot)), Some((arrival, _))) if without_worker <= arrival => {
                Some(slot)
            }
            (without_worker, queued) => queued.or(without_worker).map(|(_, slot)| slot),
        }
    }

    fn count_passed_over(&mut self, to: Option<u32>) {
        if self.order == JobPolicy::Arrival {
            return;
        }
        let waits = self.longest_waiting();
        let is_passed_over = waits.is_some() && waits != to;
        self.passed_over =
            if is_passed_over { (self.passed_over + 1).min(JobPolicy::TURN) } else { 0 };
    }

    fn job(&self, slot: u32) -> &ScheduledJob {
        self.jobs[slot as usize].as_ref().expect("a ranked job is unfinished")
    }

    /// Returns whether rule 2 admits another job.
    fn can_admit(&self) -> bool {
        let most = if self.order == JobPolicy::Arrival { self.workers } else { usize::MAX };
        self.active < self.max_active.unwrap_or(most)
    }

    fn has_aged(&self, since: u64) -> bool {
        self.patience.is_some_and(|patience| self.now - since >= patience)
    }

    fn assign_to_job(&mut self, slot: u32, rule: Rule) -> Decision {
        if rule == Rule::Admit {
            self.loose.had_its_turn = false;
        }
        self.busy += 1;
        let now = self.now;
        let (serial, take) = self.change(slot, |job| {
            // An aged job has got its worker; its time starts anew.
            if rule == Rule::Aged {
                job.at_one_worker_since = Some(now);
            }
            (job.serial, job.start())
        });
        Decision { to: Claimant::Job(JobId { serial, slot }), rule, take }
    }

    /// Returns whether [`take_ready`](Self::take_ready) would assign a worker.
    pub(super) fn may_take_ready(&self, id: JobId) -> bool {
        let can_start = |job: &ScheduledJob| job.admitted && !job.paused && job.ready > 0;
        self.busy < self.workers && self.job_matches(id, can_start)
    }

    /// Assigns a free worker to a ready subtask of an admitted job, outside of the rules.
    pub(super) fn take_ready(&mut self, id: JobId) -> bool {
        if !self.may_take_ready(id) {
            return false;
        }
        self.busy += 1;
        self.change(id.slot, |job| job.start());
        true
    }

    fn assign_to_loose(&mut self, rule: Rule) -> Decision {
        if rule == Rule::Admit {
            self.loose.had_its_turn = true;
        }
        self.busy += 1;
        self.loose.running += 1;
        self.update_loose();
        Decision { to: Claimant::Loose, rule, take: Take::Ready }
    }

    pub(super) fn submit(&mut self, supply: Supply, weight: u32) -> JobId {
        let serial = self.serials;
        self.serials += 1;
        let job = ScheduledJob::new(serial, supply, weight, self.now);
        if job.is_over() {
            return JobId { serial, slot: NO_SLOT };
        }
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        self.jobs[slot as usize] = Some(job);
        self.change(slot, |_| {});
        JobId { serial, slot }
    }

    /// Adds a slot, with capacity for it in every ranking, so that no other call allocates.
    fn add_slot(&mut self) -> u32 {
        self.jobs.push(None);
        let slots = self.jobs.len();
        self.free.reserve(slots - self.free.len());
        self.queue.reserve_slots(slots);
        self.queue_by_rank.reserve_slots(slots);
        self.without_worker.reserve_slots(slots);
        self.at_one_worker.reserve_slots(slots);
        self.least.reserve_slots(slots);
        u32::try_from(slots - 1).expect("fewer than 2^32 unfinished jobs fit into memory")
    }

    /// Releases a worker. Returns true if this ends the job.
    pub(super) fn ended(&mut self, who: Claimant, end: End) -> bool {
        match who {
            Claimant::Job(id) => {
                let slot = self.find(id).unwrap_or_else(|| panic!("{id} is over"));
                self.change(slot, |job| job.end(end));
            }
            Claimant::Loose => {
                assert!(self.loose.running > 0, "no worker is assigned to work outside jobs");
                self.loose.running -= 1;
                self.loose.ready &= end != End::Nothing;
                self.update_loose();
            }
        }
        self.busy -= 1;
        matches!(who, Claimant::Job(id) if self.find(id).is_none())
    }

    pub(super) fn ran_more(&mut self, id: JobId, take: Take, done: u64, failed: u64) {
        let slot = self.find(id).unwrap_or_else(|| panic!("{id} is over"));
        self.change(slot, |job| job.ran_more(take, done, failed));
    }

    pub(super) fn split_more(&mut self, id: JobId, count: u64) {
        let slot = self.find(id).unwrap_or_else(|| panic!("{id} is over"));
        self.change(slot, |job| job.split_more(count));
    }

    pub(super) fn exhausted(&mut self, id: JobId) -> bool {
        self.change_if_live(id, |job| job.splitter = Splitter::Closed) && self.find(id).is_none()
    }

    /// Returns false if the job has ended or is cancelled, which a caller cannot always know.
    pub(super) fn ready(&mut self, id: JobId, count: u64) -> bool {
        self.change_if_live(id, |job| job.become_ready(count))
    }

    pub(super) fn unready(&mut self, id: JobId, count: u64) -> bool {
        self.change_if_live(id, |job| job.return_to_waiting(count))
    }

    pub(super) fn came(&mut self, id: JobId, ready: u64, waiting: u64) -> bool {
        self.change_if_live(id, |job| job.add_subtasks(ready, waiting))
    }

    pub(super) fn settled(&mut self, id: JobId, failed: bool) -> bool {
        self.change_if_live(id, |job| job.resolve_waiting(failed))
    }

    pub(super) fn set_splitter_paused(&mut self, id: JobId, splitter_paused: bool) -> bool {
        self.change_if_live(id, |job| job.splitter_paused = splitter_paused)
    }

    pub(super) fn pause(&mut self, id: JobId, paused: bool) -> bool {
        self.change_if_live(id, |job| job.paused = paused)
    }

    pub(super) fn cancel(&mut self, id: JobId) -> bool {
        self.change_if_live(id, ScheduledJob::cancel)
    }

    pub(super) fn set_weight(&mut self, id: JobId, weight: u32) -> bool {
        self.change_if_live(id, |job| job.weight = weight)
    }

    pub(super) fn loose_ready(&mut self, ready: bool) {
        self.loose.ready = ready;
        self.update_loose();
    }

    pub(super) fn is_loose_ready(&self) -> bool {
        self.loose.ready
    }

    pub(super) fn resize(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// At least 1: with a bound of 0 no job would ever start.
    pub(super) fn set_max_active(&mut self, max_active: Option<usize>) {
        self.max_active = max_active.map(|most| most.max(1));
    }

    pub(super) fn set_patience(&mut self, patience: u64) {
        self.patience = Some(patience);
        self.update_all();
    }

    pub(super) fn set_policy(&mut self, order: JobPolicy) {
        self.order = order;
        self.update_all();
    }

    fn update_all(&mut self) {
        for slot in 0..self.jobs.len() {
            if self.jobs[slot].is_some() {
                self.change(slot as u32, |_| {});
            }
        }
    }

    /// Advances the time, which never goes back.
    pub(super) fn at(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }

    /// Returns whether the job is unfinished and `question` is true for it.
    pub(super) fn job_matches(
        &self,
        id: JobId,
        question: impl FnOnce(&ScheduledJob) -> bool,
    ) -> bool {
        self.find(id).is_some_and(|slot| question(self.job(slot)))
    }

    pub(super) fn progress(&self, id: JobId) -> Option<JobProgress> {
        let slot = self.find(id)?;
        self.jobs[slot as usize].as_ref().map(ScheduledJob::progress)
    }

    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    pub(super) fn active(&self) -> usize {
        self.active
    }

    pub(super) fn unfinished(&self) -> usize {
        self.jobs.len() - self.free.len()
    }

    /// Returns whether this job would get every free worker until the next event.
    pub(super) fn is_alone(&self, id: JobId) -> bool {
        self.unfinished() == 1 && self.find(id).is_some() && !self.loose.ready
    }

    fn find(&self, id: JobId) -> Option<u32> {
        let job = self.jobs.get(id.slot as usize)?.as_ref()?;
        (job.serial == id.serial).then_some(id.slot)
    }

    fn change_if_live(&mut self, id: JobId, change: impl FnOnce(&mut ScheduledJob)) -> bool {
        let Some(slot) = self.find(id) else { return false };
        if self.jobs[slot as usize].as_ref().is_some_and(|job| job.cancelled) {
            return false;
        }
        self.change(slot, change);
        true
    }

    /// Changes a job and updates its rankings. Every change goes through here, so the rankings and
    /// the number of active jobs are functions of the jobs.
    fn change<T>(&mut self, slot: u32, change: impl FnOnce(&mut ScheduledJob) -> T) -> T {
        let job = self.jobs[slot as usize].as_mut().expect("the slot was found, or just filled");
        let was_active = job.counts_as_active();
        let result = change(job);
        let offers = job.offers();
        let claims = job.admitted && offers;

        let needs_worker = claims && job.running == 0;
        job.needs_since =
            update_needs_since(needs_worker, job.needs_since, self.now, &mut self.needs);
        let has_one_worker = claims && job.running <= 1 && self.patience.is_some();
        job.at_one_worker_since =
            has_one_worker.then(|| job.at_one_worker_since.unwrap_or(self.now));

        let rank = Some(job.rank());
        let is_queued = !job.admitted && offers;
        self.queue.set(slot, is_queued.then_some((job.arrival, job.serial)));
        self.without_worker.set(slot, job.needs_since);
        self.least.set(slot, rank.filter(|_| claims));
        self.at_one_worker.set(slot, job.at_one_worker_since.map(|since| (since, job.serial)));
        if self.order != JobPolicy::Arrival {
            self.queue_by_rank.set(slot, rank.filter(|_| is_queued));
        }
        self.active = self.active + usize::from(job.counts_as_active()) - usize::from(was_active);
        if job.is_over() {
            self.jobs[slot as usize] = None;
            self.free.push(slot);
        }
        result
    }

    fn update_loose(&mut self) {
        let needs_worker = self.loose.ready && self.loose.running == 0;
        let since = self.loose.needs_since;
        self.loose.needs_since = update_needs_since(needs_worker, since, self.now, &mut self.needs);
    }
}

/// Start of the state of needing a first worker: unchanged if it lasts, otherwise now, after all
/// others.
fn update_needs_since(
    needs_worker: bool,
    since: Option<EventTime>,
    now: u64,
    needs: &mut u64,
) -> Option<EventTime> {
    if !needs_worker || since.is_some() {
        return since.filter(|_| needs_worker);
    }
    *needs += 1;
    Some((now, *needs))
}
