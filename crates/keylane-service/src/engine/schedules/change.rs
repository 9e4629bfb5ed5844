//! Changes of schedules on the disk.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Schedules;
use super::table::{ScheduleEntry, ScheduleUpdate, StoredSchedule};
use crate::engine::audit::AuditedRequest;
use crate::request_error::RequestError;
use crate::store::Changes;

impl Schedules {
    /// Returns the changes that store `kept`, or delete the schedule if it is `None`, provided that
    /// the stored version is `was`; and the entry to publish after the commit.
    pub(super) fn changing(
        &self,
        name: &str,
        was: Option<u64>,
        kept: Option<StoredSchedule>,
    ) -> (Changes, ScheduleUpdate) {
        let version = self.state.lock().versions.take().max(was.unwrap_or(0) + 1);
        let mut changes = Changes::new();
        let body = |kept| serde_json::to_vec(kept).expect("a schedule can be written as JSON");
        changes.schedule(name, was, kept.as_ref().map(|kept| (version, body(kept))));
        let then = kept.map(|kept| ScheduleEntry::new(version, kept));
        (changes, ScheduleUpdate { name: name.to_owned(), then })
    }

    /// Changes a schedule, with the audit entry of `act` if a client requested it. Returns when the
    /// change is on the disk. The caller holds the schedule's lock.
    pub(super) async fn change_schedule(
        &self,
        name: &str,
        was: Option<u64>,
        kept: Option<StoredSchedule>,
        act: Option<&AuditedRequest>,
    ) -> Result<(), RequestError> {
        let (mut changes, changing) = self.changing(name, was, kept);
        if let Some(act) = act {
            self.audit.add(act, &mut changes);
        }
        let (reply, replied) = oneshot::channel();
        let (table, status) = (Arc::clone(&self.table), Arc::clone(&self.status));
        self.store.submit_with(changes, move |written| {
            let answer = written.map(|_| changing.done(&table));
            // The receiver waits for this unless the runtime ends.
            let _ = reply.send(answer.map_err(|error| status.write_refused(error)));
        });
        replied.await.map_err(|_| RequestError::StoreFailed("the writer has ended".into()))??;
        if let Some(act) = act {
            self.audit.committed(act);
        }
        Ok(())
    }
}
