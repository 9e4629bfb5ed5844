//! Tasks whose delay is not over. `delays.rs` has the protocol.

use std::collections::{BTreeMap, HashMap};

use hashbrown::HashTable;

use crate::order::Claims;
use crate::sync::{Backoff, Mutex};

/// Delayed tasks of an engine. `T` is the type of their permits.
#[derive(Debug)]
pub(crate) struct DelayedTasks<K, W, T> {
    /// Locked alone, or by a thread that asks the work of tasks for their names. The keys' `Eq` is
    /// called under the lock.
    queue: Mutex<DelayQueue<K, W, T>>,
}

#[derive(Debug)]
struct DelayQueue<K, W, T> {
    /// Number of the last task.
    last: u64,
    /// Tasks by number.
    tasks: BTreeMap<u64, DelayedTask<K, W, T>>,
    /// Hashes and numbers of those of `tasks` that the next latest task of their key replaces.
    latest: HashTable<(u64, u64)>,
    /// Series of replacements of which replaced work is being dropped.
    dropping: HashMap<u64, DroppingSeries>,
    /// Whether the timer enters a task, which is not in `tasks` then.
    entering: bool,
    /// Set once: no task is delayed any more.
    over: bool,
}

/// Work of one series that was replaced and is not dropped yet.
#[derive(Debug, Default)]
struct DroppingSeries {
    /// Number of works being dropped.
    count: usize,
    /// Task of the series whose delay is over, and which enters after the last drop.
    due: Option<u64>,
}

/// Admitted task whose delay is not over.
#[derive(Debug)]
pub(crate) struct DelayedTask<K, W, T> {
    pub(super) claims: Claims<K>,
    pub(super) work: W,
    pub(super) ticket: T,
    pub(super) role: DelayedRole,
    /// Time at which the delay is over, in nanoseconds.
    pub(super) at: u64,
    /// Series of tasks that have replaced each other: number of its first task. 0 for a first one.
    pub(super) series: u64,
}

/// Position that a task takes when its delay is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DelayedRole {
    /// After all tasks that were submitted before.
    Ordinary,
    /// In place of the latest one of its key, which has this hash.
    Latest { hash: u64 },
    /// As the last one of its key.
    End { refuses: bool },
}

/// Result of a delayed latest task: its number, and the task that it has replaced.
pub(super) type PutLatest<K, W, T> = (u64, Option<(u64, DelayedTask<K, W, T>)>);

impl<K, W, T> Default for DelayedTasks<K, W, T> {
    fn default() -> Self {
        DelayedTasks {
            queue: Mutex::new(DelayQueue {
                last: 0,
                tasks: BTreeMap::new(),
                latest: HashTable::new(),
                dropping: HashMap::new(),
                entering: false,
                over: false,
            }),
        }
    }
}

impl<K, W, T> DelayQueue<K, W, T> {
    fn insert(&mut self, mut task: DelayedTask<K, W, T>) -> u64 {
        self.last += 1;
        let number = self.last;
        if task.series == 0 {
            task.series = number;
        }
        if let DelayedRole::Latest { hash } = task.role {
            self.latest.insert_unique(hash, (hash, number), |(hash, _)| *hash);
        }
        self.tasks.insert(number, task);
        number
    }

    fn remove(&mut self, number: u64) -> Option<DelayedTask<K, W, T>> {
        let task = self.tasks.remove(&number)?;
        if let DelayedRole::Latest { hash } = task.role {
            let entry = self.latest.find_entry(hash, |(_, of)| *of == number);
            entry.expect("a latest task is listed").remove();
        }
        Some(task)
    }
}

impl<K: Eq, W, T> DelayedTasks<K, W, T> {
    /// Adds a task. Returns its number, or the task, if none is delayed any more.
    pub(super) fn insert(&self, task: DelayedTask<K, W, T>) -> Result<u64, DelayedTask<K, W, T>> {
        let mut queue = self.queue.lock();
        if queue.over { Err(task) } else { Ok(queue.insert(task)) }
    }

    /// Adds a latest task made by `make`, which replaces the delayed one of its key. `make` gets
    /// whether there is one, and returns `None` to add nothing. With `drops` it enters only after
    /// [`dropped`](Self::dropped) was called for the replaced one.
    pub(super) fn insert_latest(
        &self,
        (hash, key): (u64, &K),
        drops: bool,
        make: impl FnOnce(bool) -> Option<DelayedTask<K, W, T>>,
    ) -> Result<Option<PutLatest<K, W, T>>, EngineStopped> {
        let mut queue = self.queue.lock();
        if queue.over {
            return Err(EngineStopped);
        }
        let queue = &mut *queue;
        let is_it = |(_, number): &(u64, u64)| queue.tasks[number].claims.only_key() == Some(key);
        let before = queue.latest.find(hash, is_it).map(|(_, number)| *number);
        let Some(mut task) = make(before.is_some()) else { return Ok(None) };
        let replaced = before.and_then(|before| Some((before, queue.remove(before)?)));
        if let Some((_, replaced)) = &replaced {
            task.series = replaced.series;
            let dropping = queue.dropping.get_mut(&task.series);
            // The delay begins anew.
            dropping.into_iter().for_each(|dropping| dropping.due = None);
            if drops {
                queue.dropping.entry(task.series).or_default().count += 1;
            }
        }
        Ok(Some((queue.insert(task), replaced)))
    }

    /// Records that replaced work of a series is dropped. Returns the task that can enter now.
    pub(super) fn dropped(&self, series: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        let dropping = queue.dropping.get_mut(&series)?;
        dropping.count -= 1;
        if dropping.count > 0 {
            return None;
        }
        queue.dropping.remove(&series)?.due
    }

    /// Removes a task whose delay is not over.
    pub(super) fn withdraw(&self, number: u64) -> Option<DelayedTask<K, W, T>> {
        self.queue.lock().remove(number)
    }

    /// Removes a task that the caller, the timer, enters now; then it calls
    /// [`entered`](Self::entered). A task that waits for drops of its series stays.
    pub(super) fn enter(&self, number: u64) -> Option<DelayedTask<K, W, T>> {
        let mut queue = self.queue.lock();
        let series = queue.tasks.get(&number)?.series;
        if let Some(dropping) = queue.dropping.get_mut(&series) {
            dropping.due = Some(number);
            return None;
        }
        let task = queue.remove(number)?;
        queue.entering = true;
        Some(task)
    }

    /// Ends the entry of a task, which is in its inboxes now, or was refused.
    pub(super) fn entered(&self) {
        self.queue.lock().entering = false;
    }

    /// Removes all tasks with exactly this key and the role of an ordinary or a latest task whose
    /// work satisfies `may_take`, in the order of their times.
    pub(super) fn take_key(
        &self,
        key: &K,
        may_take: impl Fn(&W) -> bool,
    ) -> Vec<(u64, DelayedTask<K, W, T>)> {
        let mut queue = self.queue.lock();
        let is_taken = |task: &DelayedTask<K, W, T>| {
            !matches!(task.role, DelayedRole::End { .. })
                && task.claims.only_key() == Some(key)
                && may_take(&task.work)
        };
        let found = queue.tasks.iter().filter(|(_, task)| is_taken(task));
        let mut found: Vec<_> = found.map(|(number, task)| (task.at, *number)).collect();
        found.sort_unstable();
        found.into_iter().filter_map(|(_, number)| Some((number, queue.remove(number)?))).collect()
    }

    /// Removes all tasks for good, in the order of their times. With `waits`, a task that the timer
    /// enters is waited for.
    pub(super) fn end(&self, waits: bool) -> Vec<DelayedTask<K, W, T>> {
        // The timer may be in a user's code: the hash or clone of a key, the drop of a replaced task.
        let mut backoff = Backoff::default();
        loop {
            let mut queue = self.queue.lock();
            queue.over = true;
            if !waits || !queue.entering {
                queue.latest.clear();
                let mut tasks: Vec<_> = std::mem::take(&mut queue.tasks).into_iter().collect();
                drop(queue);
                tasks.sort_by_key(|(number, task)| (task.at, *number));
                return tasks.into_iter().map(|(_, task)| task).collect();
            }
            drop(queue);
            backoff.pause();
        }
    }
}

impl<K, W, T> DelayedTasks<K, W, T> {
    /// Returns the time at which the delay of a task is over, if its work satisfies `is_it`.
    pub(super) fn find(&self, is_it: impl Fn(&W) -> bool) -> Option<u64> {
        let queue = self.queue.lock();
        queue.tasks.values().find(|task| is_it(&task.work)).map(|task| task.at)
    }

    /// Number of delayed tasks, with one that is being entered: until it is in its inboxes, nothing
    /// else counts it.
    pub(super) fn len(&self) -> usize {
        let queue = self.queue.lock();
        queue.tasks.len() + usize::from(queue.entering)
    }
}

/// Error: the engine has stopped.
pub(super) struct EngineStopped;
