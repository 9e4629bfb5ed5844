//! Backups of the running service: on request, and on a schedule into a folder.
//!
//! A copy is one snapshot of the store, made while jobs are accepted and run ([`Store::backup`]). Only one
//! is made at a time, because each keeps the store's log from restarting.

mod backup_schedule;
mod copies;
mod folder;
mod scheduled;

pub use self::backup_schedule::BackupSchedule;
pub(super) use self::copies::BackupDependencies;
pub(crate) use self::copies::Backups;
