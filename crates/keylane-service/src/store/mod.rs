//! Durable store of the service: jobs with their subtasks and outcomes, and the requests of users,
//! in one SQLite file, or in a PostgreSQL database.
//!
//! An acknowledged change is complete on the disk; damaged data is refused and named. Subtasks and
//! outcomes are grouped in chunks, and not in a row each. One thread writes many changes in a
//! transaction, and reports their results in the order of the commits; each reader has its own
//! connection. `README.md` beside this file has the layout, the protocol and its reasons. [`Store`]
//! has an example.

mod alias;
mod audit;
mod backup;
mod boot_number;
mod census;
mod change;
mod check;
mod chunk;
mod chunk_cache;
mod chunk_keys;
mod chunk_packer;
mod chunk_writer;
mod connection;
mod copy_error;
mod damaged_job;
mod ended;
mod error;
mod export;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod handle;
mod import;
mod inbox;
mod job_extension;
mod job_status;
mod key_rows;
mod line;
mod live_settings;
mod logs;
mod open;
mod outcome;
mod pending;
#[cfg(feature = "postgres")]
mod postgres;
mod queries;
mod queue;
mod read;
mod recover;
mod row_numbers;
mod salvage;
mod schedules;
mod settings;
mod shared;
#[cfg(test)]
mod simulated;
mod small_jobs;
mod sqlite_connection;
mod sqlite_database;
mod started_attempts;
mod store_dependencies;
mod tables;
mod upload;
mod upload_state;
mod write_transaction;
mod writer;
mod writer_database;
mod writer_state;

pub use alias::JobAlias;
pub use audit::{AuditFilter, AuditPage, AuditRecord, AuditRetention, AuditRow};
pub(crate) use boot_number::FENCE_BITS;
pub use change::{Changes, CommitReceipt, IdempotencyEntry, KeyBlockReason, KeyRecord, NewJob};
pub use chunk::{Chunk, MAX_SUBTASKS, StoredSubtask, SubtaskKeys};
pub use copy_error::{BackupError, ExportError, ImportError, SalvageError};
pub use damaged_job::DamagedJob;
pub use ended::PinnedIndex;
pub use error::{ReadError, StoreDamage, StoreOpenError, WriteError};
#[cfg(any(test, fuzzing))]
pub use fuzz::{fuzz_chunk, fuzz_export_line, fuzz_log, fuzz_marks};
pub use handle::{Store, StoreStats};
pub(crate) use inbox::InboxRow;
pub use job_extension::JobExtension;
pub use job_status::{JobState, JobStatus, OutcomeCounts};
pub use live_settings::LiveSetting;
pub use logs::AttemptLog;
pub use outcome::{OutcomeKind, OutcomePosition, RecordedOutcome, SubtaskOutcome};
pub use pending::PendingWrite;
#[cfg(feature = "postgres")]
pub use postgres::{Migration, PostgresSettings, PostgresUrlError};
pub use read::{EndedJob, JobFilter, JobPage, JobPredicate, StoredJob};
pub use recover::{RecoveredJob, RecoveredJobs, WaitingSubtask};
pub use salvage::SalvageReport;
pub use schedules::ScheduleRecord;
pub(crate) use schedules::ScheduleRow;
pub use settings::{StoreReport, StoreSettings};
#[cfg(test)]
pub(crate) use simulated::{SimulatedDisk, WriteFate};
pub use started_attempts::{AttemptStage, LatestAttempt};
pub(crate) use store_dependencies::Outside;
pub use upload::JobUpload;
