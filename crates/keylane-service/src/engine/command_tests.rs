//! Commands that come while the writer is in the middle of something: they are done all the same, in the order of the
//! disk, or refused before anything is written.

use std::sync::mpsc;

use futures_util::FutureExt;
use tokio::sync::watch;

use super::*;
use crate::engine::Settings;
use crate::engine::audit::Action;
use crate::engine::events::Followed;
use crate::handle::{Attempt, Function};
use crate::wire::{EventKind, JobState};
use crate::{Kind, Service};

/// The writer stands still in a callback until this is dropped: what it has committed together with it is on the
/// disk, and of what stands behind it nobody was told.
struct Held {
    entered: mpsc::Receiver<()>,
    _leave: mpsc::Sender<()>,
}

impl Held {
    fn new(core: &Core) -> Self {
        let (enter, entered) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        core.store.submit_with(Changes::new(), move |_| {
            enter.send(()).unwrap();
            // An error is what tells it to go on.
            let _ = left.recv();
        });
        Held { entered, _leave: leave }
    }

    fn wait(&self) {
        self.entered.recv().unwrap();
    }
}

/// A service whose jobs of the kind `gated` end when the gate is open.
async fn start(folder: &std::path::Path) -> (Service, watch::Sender<bool>) {
    let (gate, at_gate) = watch::channel(false);
    let gated = Function::new(move |_: Attempt| {
        let mut at_gate = at_gate.clone();
        async move {
            let _ = at_gate.wait_for(|is_open| *is_open).await;
            Ok(None)
        }
    });
    let settings = Settings::new(folder.join("store"));
    let service = Service::builder(settings).kind("gated", Kind::new(gated)).start();
    (service.await.unwrap(), gate)
}

fn named(name: &str) -> JobPatch {
    JobPatch { name: Some(name.into()), ..JobPatch::default() }
}

/// The change of its head was taken, and went to the disk behind the end of the job. Had the job been removed in
/// between, the store would have refused it, and with it the outcomes of other jobs in the same batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_end_is_on_its_way_to_the_disk_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (service, gate) = start(folder.path()).await;
    let core = &service.core;
    let id = service.submit(r#"{"kind":"gated","payload":1}"#).await.unwrap();
    let held = Held::new(core);
    held.wait();
    gate.send(true).unwrap();
    while !core.books().live[&id.number()].is_closing {
        tokio::task::yield_now().await;
    }
    let act = Act::in_process(Action::PatchJob);
    let patched = core.patch_job(id, named("late"), None, &act).now_or_never();
    assert!(matches!(patched, Some(Err(Refused::Conflict(_)))), "{patched:?}");
    drop(held);
    let job = service.wait(id).await.unwrap();
    assert_eq!((job.state, job.name), (JobState::Succeeded, None));
}

/// The request published that a job was removed, after its commit: nobody learned of it when the client had gone
/// away by then.
#[tokio::test(flavor = "multi_thread")]
async fn followers_learn_of_a_removal_though_the_client_has_gone_away() {
    let folder = tempfile::tempdir().unwrap();
    let (service, gate) = start(folder.path()).await;
    gate.send(true).unwrap();
    let core = &service.core;
    let id = service.submit(r#"{"kind":"gated","payload":1}"#).await.unwrap();
    service.wait(id).await.unwrap();

    let held = Held::new(core);
    held.wait();
    let act = Arc::new(Act::in_process(Action::PurgeJob));
    let purging = core.purge_job(id, &act).now_or_never();
    assert!(purging.is_none(), "it is not on the disk yet: {purging:?}");
    let (mut follower, _) = core.events.follow(None);
    drop(held);
    // Answered behind it.
    core.store.submit(Changes::new()).await.unwrap();
    assert!(matches!(core.stored(id), Err(Refused::Gone { .. })));
    let Some(Followed::Event(event)) = follower.try_next() else { panic!("nobody was told") };
    let job = event.job.as_ref().map(|job| job.id.clone());
    assert_eq!((event.event, job), (EventKind::JobPurged, Some(id.to_string())));
}
