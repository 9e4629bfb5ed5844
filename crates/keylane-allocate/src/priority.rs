//! Priority classes among the jobs of a tenant: a [`JobScheduler`] for each class, and the choice among them.
//!
//! A free worker goes to the highest class that offers work. So that no class starves, a class *ages*: of the classes that
//! have offered work for the ageing time without a start, the highest one included, the one that has waited longest gets
//! the next worker, and its time starts anew. After such a start before a higher class, the highest class comes first, so
//! that it gets at least every other worker, however long the subtasks are.
//!
//! # Why no class starves
//!
//! Let a class offer work from a time on. Its `waits_since` is then set, and only a start of this class or the end of its
//! offer changes it (`update`). After the ageing time it has aged. From then on, a decision that the highest class does not
//! have by `was_aged` chooses a class that has waited as long or longer. Either of the two others does so once at most,
//! because its time starts anew with its start, or later. A decision by `was_aged` follows only a start before a higher
//! class. That is at most one at the beginning and one after a start of a lower one, and it starts the time of the highest
//! class anew, so at most three starts in all come first. Among the jobs of the class, the rules and their proof hold as
//! without classes.

use super::{Claimant, Decision, JobId, JobScheduler};

/// Priority of a job among the jobs of its tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Before all others.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Priority {
    /// All priorities, the highest first.
    pub const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

    fn index(self) -> usize {
        self as usize
    }
}

/// Jobs of a tenant, by priority.
#[derive(Clone, Debug)]
pub(super) struct PriorityClasses {
    /// The class [`Priority::Normal`] always exists, and another one from its first job on.
    classes: [Option<JobScheduler>; 3],
    /// Time since which a class offers work and has had no start.
    waits_since: [Option<u64>; 3],
    /// Maximum time for which a class waits for a start; unlimited if `None`.
    ageing: Option<u64>,
    /// Whether the last start was of an aged class, before a higher one: the highest class is next.
    was_aged: bool,
    /// Latest time passed in.
    now: u64,
}

impl PriorityClasses {
    pub(super) fn new(normal: JobScheduler, ageing: Option<u64>) -> Self {
        PriorityClasses {
            classes: [None, Some(normal), None],
            waits_since: [None; 3],
            ageing,
            was_aged: false,
            now: 0,
        }
    }

    pub(super) fn set_ageing(&mut self, ageing: Option<u64>) {
        self.ageing = ageing;
    }

    /// Changes the jobs of all classes.
    pub(super) fn for_each(&mut self, now: u64, change: impl FnMut(&mut JobScheduler)) {
        self.classes.iter_mut().flatten().for_each(change);
        self.update(now);
    }

    /// Replaces the settings of all classes, which have no jobs.
    pub(super) fn rebuild(&mut self, change: impl Fn(JobScheduler) -> JobScheduler) {
        for class in &mut self.classes {
            *class = class.take().map(&change);
        }
    }

    /// Changes the jobs of a class. `create` creates it, if this is its first job.
    pub(super) fn with<T>(
        &mut self,
        priority: Priority,
        now: u64,
        create: impl FnOnce() -> JobScheduler,
        change: impl FnOnce(&mut JobScheduler) -> T,
    ) -> T {
        let result = change(self.classes[priority.index()].get_or_insert_with(create));
        self.update(now);
        result
    }

    /// Jobs of a class that has had a job.
    pub(super) fn class(&self, priority: Priority) -> Option<&JobScheduler> {
        self.classes[priority.index()].as_ref()
    }

    pub(super) fn normal_mut(&mut self) -> &mut JobScheduler {
        self.classes[Priority::Normal.index()].as_mut().expect("this class always exists")
    }

    /// Brings the waiting times up to date. Every change goes through here.
    fn update(&mut self, now: u64) {
        self.now = self.now.max(now);
        for (class, since) in self.classes.iter().zip(&mut self.waits_since) {
            let offers = class.as_ref().is_some_and(JobScheduler::has_offer);
            *since = offers.then(|| since.unwrap_or(self.now));
        }
    }

    /// Returns the class that gets a free worker now.
    pub(super) fn choose(&mut self, now: u64) -> Option<Priority> {
        self.now = self.now.max(now);
        let since = |priority: &Priority| self.waits_since[priority.index()];
        let offering = Priority::ALL.into_iter().filter(|priority| since(priority).is_some());
        let has_aged = |priority: &Priority| {
            let waited = since(priority).map(|since| self.now - since);
            waited.zip(self.ageing).is_some_and(|(waited, ageing)| waited >= ageing)
        };
        let aged = offering.clone().filter(has_aged).min_by_key(since).filter(|_| !self.was_aged);
        aged.or_else(|| offering.min())
    }

    /// Assigns a worker to a job of a class.
    pub(super) fn start(&mut self, priority: Priority, now: u64) -> Option<Decision> {
        let decision = self.classes[priority.index()].as_mut()?.next(now)?;
        self.was_aged = self.is_behind(priority);
        self.waits_since[priority.index()] = None;
        self.update(now);
        Some(decision)
    }

    pub(super) fn could_decide(&self) -> bool {
        self.classes.iter().flatten().any(JobScheduler::could_decide)
    }

    /// Returns whether a higher class offers work.
    pub(super) fn is_behind(&self, priority: Priority) -> bool {
        self.classes[..priority.index()].iter().flatten().any(JobScheduler::has_offer)
    }

    /// Returns the job of a class that would get a worker.
    pub(super) fn peek(&mut self, priority: Priority, now: u64) -> Option<JobId> {
        match self.classes[priority.index()].as_mut()?.peek(now)? {
            Claimant::Job(job) => Some(job),
            Claimant::Loose => unreachable!("all work belongs to a job"),
        }
    }

    pub(super) fn busy(&self) -> usize {
        self.classes.iter().flatten().map(JobScheduler::busy).sum()
    }

    pub(super) fn active(&self) -> usize {
        self.classes.iter().flatten().map(JobScheduler::active).sum()
    }

    pub(super) fn unfinished(&self) -> usize {
        self.classes.iter().flatten().map(JobScheduler::unfinished).sum()
    }
}
