//! The four rules as a state machine: events in, decisions out. README.md beside it has the text.

use super::indexed_heap::IndexedHeap;
use super::job::{Rank, ScheduledJob, Since, Splitter};
use super::{Claimant, Decision, End, JobId, Order, Progress, Rule, Supply, Take};

/// The slot of a job that was over as soon as it was submitted.
const NO_SLOT: u32 = u32::MAX;

/// The work outside jobs, as one stream: nothing is known of its tasks but whether there are some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LooseWork {
    pub(super) ready: bool,
    pub(super) running: usize,
    /// As for a job: its place among those who offer something and have no worker.
    pub(super) needs_since: Option<Since>,
    /// The last that rule 2 let in was a loose task, so now it is the line's turn.
    pub(super) had_its_turn: bool,
    /// The last decision of all was for it.
    pub(super) was_last: bool,
}

/// A job's slot, or the loose work; and why.
type Choice = (Option<u32>, Rule);

/// All that decides. Two of them that were told the same decide the same.
#[derive(Clone, Debug)]
pub(super) struct SchedulerState {
    pub(super) workers: usize,
    /// Rule 2's bound; as many as there are workers if nothing else was said.
    pub(super) max_active: Option<usize>,
    /// For how long a job may be held at one worker, or at none for shorter jobs.
    pub(super) patience: Option<u64>,
    pub(super) order: Order,
    /// How often somebody who waits was passed over since one of those who wait had a worker. Counted
    /// unless jobs are served by arrival.
    pub(super) passed_over: u32,
    /// Workers that were given to somebody and have not ended.
    busy: usize,
    /// Jobs that count against rule 2's bound.
    active: usize,
    /// The latest time that was passed in. Clocks are read outside of the caller's lock, and so come
    /// in a little out of order.
    pub(super) now: u64,
    /// Jobs submitted so far.
    pub(super) serials: u64,
    /// The last decision let a job in, so those who need their first worker are next.
    pub(super) line_had_its_turn: bool,
    /// Places given out among those who offer something and have no worker.
    pub(super) needs: u64,
    /// The unfinished jobs, by slot.
    pub(super) jobs: Vec<Option<ScheduledJob>>,
    pub(super) free: Vec<u32>,
    pub(super) loose: LooseWork,
    /// Jobs that wait to be admitted, the oldest first.
    line: IndexedHeap<Since>,
    /// The same, the least requirement first; kept only if that decides.
    shortest_in_line: IndexedHeap<Rank>,
    /// Admitted jobs that offer something and have no worker, the one longest so first.
    needy: IndexedHeap<Since>,
    /// Admitted jobs that offer something and have at most one worker, with since when, and age.
    held_down: IndexedHeap<Since>,
    /// Admitted jobs that offer something, the least requirement first.
    least: IndexedHeap<Rank>,
}

impl SchedulerState {
    pub(super) fn new(workers: usize) -> Self {
        SchedulerState {
            workers,
            max_active: None,
            patience: None,
            order: Order::Arrival,
            passed_over: 0,
            busy: 0,
            active: 0,
            now: 0,
            serials: 0,
            line_had_its_turn: false,
            needs: 0,
            jobs: Vec::new(),
            free: Vec::new(),
            loose: LooseWork::default(),
            line: IndexedHeap::new(),
            shortest_in_line: IndexedHeap::new(),
            needy: IndexedHeap::new(),
            held_down: IndexedHeap::new(),
            least: IndexedHeap::new(),
        }
    }

    /// Puts new rules into a state that was written down. Nothing if the slots are not each there once.
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

    /// Who gets a free worker, if there is one.
    pub(super) fn decide(&mut self) -> Option<Decision> {
        if self.busy >= self.workers {
            return None;
        }
        let (to, rule) = self.choose()?;
        self.line_had_its_turn = rule == Rule::Admit && to.is_some();
        self.loose.was_last = to.is_none();
        self.count_passed_over(to);
        Some(match to {
            Some(slot) => self.give_to_job(slot, rule),
            None => self.give_to_loose(rule),
        })
    }

    /// Whether `decide` would name somebody.
    pub(super) fn could_decide(&self) -> bool {
        self.peek().is_some()
    }

    /// Whom `decide` would name.
    pub(super) fn peek(&self) -> Option<Claimant> {
        let (to, _) = (self.busy < self.workers).then(|| self.choose())??;
        Some(match to {
            Some(slot) => Claimant::Job(JobId { serial: self.job(slot).serial, slot }),
            None => Claimant::Loose,
        })
    }

    fn choose(&self) -> Option<Choice> {
        match self.order {
            Order::Arrival => self.by_the_rules(),
            Order::Balanced | Order::Shortest => self.by_length(),
        }
    }

    fn by_the_rules(&self) -> Option<Choice> {
        self.admit_beyond_workers()
            .or_else(|| self.keep())
            .or_else(|| self.aged())
            .or_else(|| self.admit())
            .or_else(|| self.least.first().map(|(_, slot)| (Some(slot), Rule::Least)))
    }

    /// Rule 2 where it would let in more than there are workers, the loose work counted as one: where
    /// its bound is larger, or loose work has the last worker. Each of those who are in gets its
    /// worker back by rule 1 after every subtask, so that nobody would ever be let in if rule 1 were
    /// always asked first. If rule 2 always were, those who are in would starve under a flood of new
    /// jobs. So they take turns.
    fn admit_beyond_workers(&self) -> Option<Choice> {
        let (_, slot) = self.line.first().filter(|_| self.has_place())?;
        let loose = usize::from(self.loose.ready || self.loose.running > 0);
        let is_beyond = self.active + loose >= self.workers;
        (is_beyond && !self.line_had_its_turn).then_some((Some(slot), Rule::Admit))
    }

    /// Rule 1.
    fn keep(&self) -> Option<Choice> {
        let to = match (self.needy.first(), self.loose.needs_since) {
            (Some((since, _)), Some(loose_since)) if loose_since < since => None,
            (Some((_, slot)), _) => Some(slot),
            (None, Some(_)) => None,
            (None, None) => return None,
        };
        Some((to, Rule::Keep))
    }

    fn aged(&self) -> Option<Choice> {
        let ((since, _), slot) = self.held_down.first()?;
        self.has_aged(since).then_some((Some(slot), Rule::Aged))
    }

    /// Rule 2. A loose task is a job of one subtask, admitted and given its worker in one step. It
    /// is not bounded: a subtask of an admitted job may wait behind it for a key, and neither could
    /// go on if it had to wait for an admitted job to end.
    fn admit(&self) -> Option<Choice> {
        let job = self.line.first().filter(|_| self.has_place()).map(|(_, slot)| slot);
        let to = match (job, self.loose.ready) {
            (Some(slot), true) => self.loose.had_its_turn.then_some(slot),
            (Some(slot), false) => Some(slot),
            (None, true) => None,
            (None, false) => return None,
        };
        Some((to, Rule::Admit))
    }

    /// The other orders. Loose tasks need the least there is, and so go first; but where a job waits
    /// for a worker as well, neither waits for the other twice in a row.
    fn by_length(&self) -> Option<Choice> {
        let job = self.job_by_length();
        let loose_is_needy = self.loose.needs_since.is_some();
        let job_waits = |slot| self.job(slot).running == 0;
        match job {
            _ if !self.loose.ready => job,
            Some((Some(slot), rule))
                if (rule == Rule::Aged || job_waits(slot))
                    && (!loose_is_needy || self.loose.was_last) =>
            {
                job
            }
            _ if loose_is_needy => Some((None, Rule::Keep)),
            _ => Some((None, Rule::Admit)),
        }
    }

    /// Which job is next: who has aged; else a job that has a place and no worker; else who needs least.
    /// Now and then who waits longest.
    fn job_by_length(&self) -> Option<Choice> {
        if let Some(aged) = self.aged() {
            return Some(aged);
        }
        let oldest = self.line.first().filter(|_| self.has_place());
        if let Some(((arrival, _), slot)) = oldest
            && self.has_aged(arrival)
        {
            return Some((Some(slot), Rule::Admit));
        }
        let [first, second] = self.shortest_two();
        let first = first?;
        if self.passed_over >= Order::TURN - 1
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

    /// The two that need least of all that could be given a worker, in the line or not.
    fn shortest_two(&self) -> [Option<u32>; 2] {
        let [one, two] = self.least.first_two();
        let [three, four] = match self.has_place() {
            true => self.shortest_in_line.first_two(),
            false => [None, None],
        };
        // Both pairs are in order.
        let mut all =
            [one, two, three, four].map(|it| it.map_or((true, None), |it| (false, Some(it))));
        all.sort_unstable();
        [all[0].1, all[1].1].map(|it| it.map(|(_, slot)| slot))
    }

    /// Of those who could be given a worker and have none, the one of whom that is true longest.
    fn longest_waiting(&self) -> Option<u32> {
        let needy = self.needy.first().map(|((since, _), slot)| (since, slot));
        let in_line = self.line.first().filter(|_| self.has_place());
        let in_line = in_line.map(|((since, _), slot)| (since, slot));
        match (needy, in_line) {
            (Some((needy, slot)), Some((arrival, _))) if needy <= arrival => Some(slot),
            (needy, in_line) => in_line.or(needy).map(|(_, slot)| slot),
        }
    }

    fn count_passed_over(&mut self, to: Option<u32>) {
        if self.order == Order::Arrival {
            return;
        }
        let waits = self.longest_waiting();
        let is_passed_over = waits.is_some() && waits != to;
        self.passed_over = if is_passed_over { (self.passed_over + 1).min(Order::TURN) } else { 0 };
    }

    fn job(&self, slot: u32) -> &ScheduledJob {
        self.jobs[slot as usize].as_ref().expect("who is ranked is not over")
    }

    /// Whether rule 2 lets another job in.
    fn has_place(&self) -> bool {
        let most = if self.order == Order::Arrival { self.workers } else { usize::MAX };
        self.active < self.max_active.unwrap_or(most)
    }

    fn has_aged(&self, since: u64) -> bool {
        self.patience.is_some_and(|patience| self.now - since >= patience)
    }

    fn give_to_job(&mut self, slot: u32, rule: Rule) -> Decision {
        if rule == Rule::Admit {
            self.loose.had_its_turn = false;
        }
        self.busy += 1;
        let now = self.now;
        let (serial, take) = self.change(slot, |job| {
            // It has got its due, and waits anew for the next.
            if rule == Rule::Aged {
                job.held_down_since = Some(now);
            }
            (job.serial, job.start())
        });
        Decision { to: Claimant::Job(JobId { serial, slot }), rule, take }
    }

    fn give_to_loose(&mut self, rule: Rule) -> Decision {
        if rule == Rule::Admit {
            self.loose.had_its_turn = true;
        }
        self.busy += 1;
        self.loose.running += 1;
        self.place_loose();
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

    /// One slot more, and room for it wherever it may have to go, so that nothing else allocates.
    fn add_slot(&mut self) -> u32 {
        self.jobs.push(None);
        let slots = self.jobs.len();
        self.free.reserve(slots - self.free.len());
        self.line.reserve_slots(slots);
        self.shortest_in_line.reserve_slots(slots);
        self.needy.reserve_slots(slots);
        self.held_down.reserve_slots(slots);
        self.least.reserve_slots(slots);
        u32::try_from(slots - 1).expect("memory ends before 2^32 jobs do")
    }

    /// A worker has ended; true if the job is over with that.
    pub(super) fn ended(&mut self, who: Claimant, end: End) -> bool {
        match who {
            Claimant::Job(id) => {
                let slot = self.find(id).unwrap_or_else(|| panic!("{id} is over"));
                self.change(slot, |job| job.end(end));
            }
            Claimant::Loose => {
                assert!(self.loose.running > 0, "no worker is out for loose work");
                self.loose.running -= 1;
                self.loose.ready &= end != End::Nothing;
                self.place_loose();
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

    /// False if the job is over or cancelled, which is no mistake: it may just have become so.
    pub(super) fn ready(&mut self, id: JobId, count: u64) -> bool {
        self.change_if_live(id, |job| job.become_ready(count))
    }

    pub(super) fn unready(&mut self, id: JobId, count: u64) -> bool {
        self.change_if_live(id, |job| job.wait_again(count))
    }

    pub(super) fn came(&mut self, id: JobId, ready: u64, waiting: u64) -> bool {
        self.change_if_live(id, |job| job.come(ready, waiting))
    }

    pub(super) fn settled(&mut self, id: JobId, failed: bool) -> bool {
        self.change_if_live(id, |job| job.settle(failed))
    }

    pub(super) fn hold(&mut self, id: JobId, held: bool) -> bool {
        self.change_if_live(id, |job| job.held = held)
    }

    pub(super) fn pause(&mut self, id: JobId, paused: bool) -> bool {
        self.change_if_live(id, |job| job.paused = paused)
    }

    pub(super) fn cancel(&mut self, id: JobId) -> bool {
        self.change_if_live(id, ScheduledJob::cancel)
    }

    pub(super) fn reweigh(&mut self, id: JobId, weight: u32) -> bool {
        self.change_if_live(id, |job| job.weight = weight)
    }

    pub(super) fn loose_ready(&mut self, ready: bool) {
        self.loose.ready = ready;
        self.place_loose();
    }

    pub(super) fn is_loose_ready(&self) -> bool {
        self.loose.ready
    }

    pub(super) fn resize(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// A bound of nothing would let no job begin, ever.
    pub(super) fn bound(&mut self, max_active: Option<usize>) {
        self.max_active = max_active.map(|most| most.max(1));
    }

    pub(super) fn wait_at_most(&mut self, patience: u64) {
        self.patience = Some(patience);
        self.place_all();
    }

    pub(super) fn serve_by(&mut self, order: Order) {
        self.order = order;
        self.place_all();
    }

    fn place_all(&mut self) {
        for slot in 0..self.jobs.len() {
            if self.jobs[slot].is_some() {
                self.change(slot as u32, |_| {});
            }
        }
    }

    /// Time passes; it never goes back.
    pub(super) fn at(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }

    /// Whether the job is there and this is true of it.
    pub(super) fn is_so(&self, id: JobId, question: impl FnOnce(&ScheduledJob) -> bool) -> bool {
        self.find(id).is_some_and(|slot| question(self.job(slot)))
    }

    pub(super) fn progress(&self, id: JobId) -> Option<Progress> {
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

    /// Whether every free worker would come to this job as long as nothing else is said.
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

    /// Changes a job and puts it where it then belongs. Every change of a job is made here, so the
    /// rankings and the number of active jobs are functions of the jobs.
    fn change<T>(&mut self, slot: u32, change: impl FnOnce(&mut ScheduledJob) -> T) -> T {
        let job = self.jobs[slot as usize].as_mut().expect("the slot was found, or just filled");
        let was_active = job.counts_as_active();
        let result = change(job);
        let offers = job.offers();
        let claims = job.admitted && offers;

        let is_needy = claims && job.running == 0;
        job.needs_since = need(is_needy, job.needs_since, self.now, &mut self.needs);
        let is_held_down = claims && job.running <= 1 && self.patience.is_some();
        job.held_down_since = is_held_down.then(|| job.held_down_since.unwrap_or(self.now));

        let rank = Some(job.rank());
        let is_in_line = !job.admitted && offers;
        self.line.set(slot, is_in_line.then_some((job.arrival, job.serial)));
        self.needy.set(slot, job.needs_since);
        self.least.set(slot, rank.filter(|_| claims));
        self.held_down.set(slot, job.held_down_since.map(|since| (since, job.serial)));
        if self.order != Order::Arrival {
            self.shortest_in_line.set(slot, rank.filter(|_| is_in_line));
        }
        self.active = self.active + usize::from(job.counts_as_active()) - usize::from(was_active);
        if job.is_over() {
            self.jobs[slot as usize] = None;
            self.free.push(slot);
        }
        result
    }

    fn place_loose(&mut self) {
        let is_needy = self.loose.ready && self.loose.running == 0;
        let since = self.loose.needs_since;
        self.loose.needs_since = need(is_needy, since, self.now, &mut self.needs);
    }
}

/// Since when somebody needs a first worker: since before, or since now, behind all others.
fn need(is_needy: bool, since: Option<Since>, now: u64, needs: &mut u64) -> Option<Since> {
    if !is_needy || since.is_some() {
        return since.filter(|_| is_needy);
    }
    *needs += 1;
    Some((now, *needs))
}
