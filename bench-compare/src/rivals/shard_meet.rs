//! `shard-meet`: [`super::shard`] with rollups. A rollup is sent to every worker that owns one of
//! its keys; they wait for each other, and the last to arrive runs it.
//!
//! Lacks what `shard` lacks, and a rollup parks workers. One producer only: two would need a lock
//! around the sends of a rollup, or their rollups could deadlock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{Hasher, hasher, shard_of};
use crate::job::{Job, Task, boxed};
use crate::pool::{Pool, Submit, SubmitGroup};

enum Message {
    One(Task),
    Meet(Arc<Meeting>),
}

/// Where the workers of one rollup wait for each other.
struct Meeting {
    /// Workers still to arrive.
    missing: AtomicUsize,
    /// Taken by the last to arrive.
    task: Mutex<Option<Task>>,
    done: Mutex<bool>,
    finished: Condvar,
}

impl Meeting {
    fn arrive(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            let task = self.task.lock().unwrap().take().expect("only the last one takes it");
            task();
            *self.done.lock().unwrap() = true;
            self.finished.notify_all();
        } else {
            let done = self.done.lock().unwrap();
            drop(self.finished.wait_while(done, |done| !*done).unwrap());
        }
    }
}

pub(crate) struct ShardMeet {
    queues: Vec<Sender<Message>>,
}

impl ShardMeet {
    pub(crate) fn new(workers: usize, capacity: usize) -> ShardMeet {
        let queues = (0..workers)
            .map(|_| {
                let (queue, messages) = bounded(capacity / workers);
                thread::spawn(move || work(messages));
                queue
            })
            .collect();
        ShardMeet { queues }
    }
}

fn work(messages: Receiver<Message>) {
    for message in messages {
        match message {
            Message::One(task) => task(),
            Message::Meet(meeting) => meeting.arrive(),
        }
    }
}

impl Pool for ShardMeet {
    type Submitter = ShardMeetSubmitter;

    fn submitter(&self) -> ShardMeetSubmitter {
        ShardMeetSubmitter { queues: self.queues.clone(), hasher: hasher() }
    }
}

pub(crate) struct ShardMeetSubmitter {
    queues: Vec<Sender<Message>>,
    hasher: Hasher,
}

impl ShardMeetSubmitter {
    fn send(&self, worker: usize, message: Message) {
        assert!(self.queues[worker].send(message).is_ok(), "workers outlive producers");
    }
}

impl<J: Job> Submit<J> for ShardMeetSubmitter {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        self.send(shard_of(&self.hasher, key, self.queues.len()), Message::One(boxed(job)));
    }
}

impl<J: Job> SubmitGroup<J> for ShardMeetSubmitter {
    fn submit_group(&mut self, keys: [u64; 4], job: J) {
        let mut workers = keys.map(|key| shard_of(&self.hasher, key, self.queues.len())).to_vec();
        workers.sort_unstable();
        workers.dedup();
        if let [worker] = workers[..] {
            return self.send(worker, Message::One(boxed(job)));
        }
        let meeting = Arc::new(Meeting {
            missing: AtomicUsize::new(workers.len()),
            task: Mutex::new(Some(boxed(job))),
            done: Mutex::new(false),
            finished: Condvar::new(),
        });
        for worker in workers {
            self.send(worker, Message::Meet(meeting.clone()));
        }
    }
}
