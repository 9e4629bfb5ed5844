//! Durable store of the service: jobs with their subtasks and outcomes, and the requests of users,
//! in one SQLite file.
//!
//! An acknowledged change is complete on the disk; damaged data is refused and named. Subtasks and
//! outcomes are grouped in chunks, and not in a row each. One thread writes many changes in a
//! transaction, and reports their results in the order of the commits; each reader has its own
//! connection. `README.md` beside this file has the layout, the protocol and its reasons. [`Store`]
//! has an example.

mod alias;
mod audit;
mod backup;
mod boot;
mod cache;
mod change;
mod check;
mod chunk;
mod draft;
mod ended;
mod error;
mod export;
mod extend;
mod handle;
mod import;
mod key_rows;
mod line;
mod logs;
mod marks;
mod open;
mod outcome;
mod outside;
mod parts;
mod pending;
mod places;
mod queries;
mod queue;
mod read;
mod recover;
mod salvage;
mod schedules;
mod settings;
mod shared;
#[cfg(test)]
mod simulated;
mod state;
mod status;
mod tables;
mod upload;
mod upload_state;
mod writer;

pub use alias::Alias;
pub use audit::{AuditFilter, AuditKept, AuditPage, AuditRecord, AuditRow};
pub(crate) use boot::FENCE_BITS;
pub use change::{Changes, Committed, Idempotency, KeyRecord, KeyState, NewJob};
pub use chunk::{Chunk, MAX_SUBTASKS, Subtask, SubtaskKeys};
pub use ended::PinnedIndex;
pub use error::{
    BackupError, Damage, ExportError, ImportError, OpenError, ReadError, SalvageError, WriteError,
};
pub use extend::Extension;
pub use handle::{Store, StoreStats};
pub use logs::AttemptLog;
pub use marks::{Mark, Stage};
pub use outcome::{Outcome, OutcomeKind, OutcomePlace, RecordedOutcome};
pub(crate) use outside::Outside;
pub use pending::Pending;
pub use read::{JobFilter, JobPage, JobPredicate, StoredJob};
pub use recover::{DamagedJob, Recovered, RecoveredJob, WaitingSubtask};
pub use salvage::Salvaged;
pub use schedules::ScheduleRecord;
pub(crate) use schedules::ScheduleRow;
pub use settings::{Report, Settings};
#[cfg(test)]
pub(crate) use simulated::{SimulatedDisk, WriteFate};
pub use status::{Counts, JobState, JobStatus};
pub use upload::Upload;
