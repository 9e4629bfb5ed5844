//! `tokio-mpsc`: an actor per key, that is a spawned loop behind a bounded tokio channel.
//!
//! Lacks: actors and their channels stay for every key ever seen, and the bound holds per key, not
//! in all. Kindly, each producer keeps its own map of actors, so that the map needs no lock.

use std::collections::HashMap;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;

use super::tokio_form::{Form, Work, Wrap, runtime};
use super::{Hasher, hasher};
use crate::pool::{Pool, Submit};

pub(crate) struct TokioMpsc<F> {
    runtime: Runtime,
    form: F,
    room_per_key: usize,
}

impl<F: Form> TokioMpsc<F> {
    pub(crate) fn new(workers: usize, room_per_key: usize, form: F) -> TokioMpsc<F> {
        TokioMpsc { runtime: runtime(workers), form, room_per_key }
    }
}

impl<F: Form> Pool for TokioMpsc<F> {
    type Submitter = MpscSubmitter<F>;

    fn submitter(&self) -> MpscSubmitter<F> {
        MpscSubmitter {
            runtime: self.runtime.handle().clone(),
            form: self.form.clone(),
            room_per_key: self.room_per_key,
            actors: HashMap::with_hasher(hasher()),
        }
    }
}

pub(crate) struct MpscSubmitter<F: Form> {
    runtime: Handle,
    form: F,
    room_per_key: usize,
    actors: HashMap<u64, mpsc::Sender<F::Work>, Hasher>,
}

impl<J, F: Wrap<J>> Submit<J> for MpscSubmitter<F> {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        let actor =
            self.actors.entry(key).or_insert_with(|| spawn_actor(&self.runtime, self.room_per_key));
        let sent = actor.blocking_send(self.form.wrap(job));
        assert!(sent.is_ok(), "actors outlive producers");
    }
}

fn spawn_actor<W: Work>(runtime: &Handle, room: usize) -> mpsc::Sender<W> {
    let (sender, mut inbox) = mpsc::channel::<W>(room);
    runtime.spawn(async move {
        while let Some(work) = inbox.recv().await {
            work.run().await;
        }
    });
    sender
}
