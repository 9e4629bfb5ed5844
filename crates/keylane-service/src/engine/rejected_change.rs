//! Isolation of a change that the store refuses as invalid: a bug here must not stop the service.
//!
//! The store writes all changes of a submission or none, so one refused change blocks all others of
//! its batch. Then the changes are submitted one by one, in order, each after the previous one was
//! written or refused. A refused change is left out and logged. Meanwhile the batch counts as being
//! with the writer, so nothing overtakes it.

use std::sync::Arc;

use super::engine_state::{CommitEffect, WriteBatch};
use super::persistence::{Persistence, is_logical};
use crate::store::{Changes, CommitReceipt};

impl Persistence {
    /// Submits the changes of a refused batch one by one; `left` has the remaining ones, the last
    /// first. Called on the writer's thread.
    pub(super) fn write_one_by_one(
        self: &Arc<Self>,
        mut left: Vec<Changes>,
        effects: Vec<CommitEffect>,
    ) {
        let Some(next) = left.pop() else {
            let nothing = Ok(CommitReceipt { commit: 0, entered: None });
            return self.written(nothing, Changes::new(), effects, None);
        };
        let this = Arc::clone(self);
        self.store.submit_returning(next, move |written, change| match written {
            Ok(_) => this.write_one_by_one(left, effects),
            Err(error) if is_logical(&error) => {
                tracing::error!(%error, ?change, "a change was refused, and is left out");
                this.write_one_by_one(left, effects);
            }
            Err(error) => {
                let changes = left.into_iter().rev().fold(change, Changes::followed_by);
                let rest = WriteBatch { changes, effects, ..WriteBatch::default() };
                this.refuse(&mut this.state.lock(), &error, rest);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::FunctionHandler;
    use crate::store::JobStatus;
    use crate::{JobNumber, Kind, Service};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_change_that_is_refused_leaves_the_others_and_the_service() {
        let folder = tempfile::tempdir().unwrap();
        let settings = crate::engine::ServiceSettings::new(folder.path().join("store"));
        let kind = Kind::new(FunctionHandler::new(|_| async { Ok(None) }));
        let service = Service::builder(settings).kind("echo", kind).start().await.unwrap();
        let core = Arc::clone(&service.core);
        let key = crate::Key::new("k");
        {
            let mut engine = core.state.lock();
            let now = core.clock.now();
            engine.unwritten.changes.status(JobNumber(777), JobStatus::WAITING);
            core.control.set_key_paused(&mut engine, &key, true, now);
        }
        core.persistence.all_written().await.unwrap();
        assert_eq!(*core.status.health(), crate::engine::store_status::StoreHealth::Well);
        let id = service.submit(r#"{"kind":"echo","payload":1}"#).await.unwrap();
        assert_eq!(service.wait(id).await.unwrap().counts.succeeded, 1);
        drop(core);
        service.stop(std::time::Duration::ZERO).await;
        let settings = crate::store::StoreSettings::default();
        let (_store, recovered) =
            crate::store::Store::open(folder.path().join("store"), &settings).unwrap();
        assert_eq!(recovered.keys()[0].0, key);
    }
}
