//! Folder of scheduled copies: their names, which tell their times, and the removal of old ones.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::wire::Timestamp;

/// Parts of a name around the time in UTC: `keylane-20260131T120000Z.db`.
const PREFIX: &str = "keylane-";
const SUFFIX: &str = ".db";
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// A folder, whose other files are left alone.
#[derive(Debug)]
pub(super) struct BackupFolder(PathBuf);

impl BackupFolder {
    pub(super) fn new(folder: PathBuf) -> Self {
        BackupFolder(folder)
    }

    /// Returns the path of a copy of this time.
    pub(super) fn path_at(&self, time: Timestamp) -> PathBuf {
        let millis = i64::try_from(time.0).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        self.0.join(format!("{PREFIX}{}{SUFFIX}", time.strftime(TIME)))
    }

    /// Returns the time of the newest copy.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.copies().last().map(|(time, _)| *time)
    }

    /// Removes all copies but this one and the newest others, so that `keep` are left. A copy that cannot be
    /// removed is tried again with the next.
    pub(super) fn keep_newest(&self, keep: NonZeroUsize, made: &Path) {
        let mut others = self.copies();
        // By a clock that was set back it is not the newest.
        others.retain(|(_, path)| path != made);
        let too_many = (others.len() + 1).saturating_sub(keep.get());
        for (_, path) in others.into_iter().take(too_many) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "an old backup was not removed");
            }
        }
    }

    /// Removes the incomplete copies of killed processes.
    pub(super) fn remove_incomplete(&self) {
        for (name, path) in self.files() {
            let is_part = ["-part", "-part-journal"]
                .iter()
                .any(|part| name.strip_suffix(part).is_some_and(|name| time_of(name).is_some()));
            if is_part && let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a part of a backup was not removed");
            }
        }
    }

    /// Returns the complete copies, the oldest first.
    fn copies(&self) -> Vec<(Timestamp, PathBuf)> {
        let mut copies: Vec<_> = self
            .files()
            .into_iter()
            .filter_map(|(name, path)| time_of(&name).map(|time| (time, path)))
            .collect();
        copies.sort_unstable_by_key(|(time, _)| *time);
        copies
    }

    /// Returns the names and paths of all files; none if the folder cannot be read, which the next copy
    /// reports.
    fn files(&self) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().filter_map(Result::ok);
        let named =
            |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.path()));
        entries.filter_map(named).collect()
    }
}

/// Returns the time in the name of a copy.
fn time_of(name: &str) -> Option<Timestamp> {
    let time = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let time = DateTime::strptime(TIME, time).ok()?.to_zoned(TimeZone::UTC).ok()?;
    u64::try_from(time.timestamp().as_millisecond()).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_copies_are_kept_and_other_files_are_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = BackupFolder::new(place.path().to_owned());
        assert_eq!(folder.newest(), None);
        let times = [1_769_860_800_000, 1_769_860_860_000, 1_769_947_200_000].map(Timestamp);
        let paths = times.map(|time| folder.path_at(time));
        assert!(paths[0].ends_with("keylane-20260131T120000Z.db"), "{paths:?}");
        for path in &paths {
            fs::write(path, "").unwrap();
        }
        let others = ["keylane-notes.db", "keylane.db", "keylane-20260131T120000Z.db.gz"];
        let parts =
            ["keylane-20260131T120500Z.db-part", "keylane-20260131T120500Z.db-part-journal"];
        for name in others.iter().chain(&parts) {
            fs::write(place.path().join(name), "").unwrap();
        }
        assert_eq!(folder.newest(), Some(times[2]));
        folder.keep_newest(NonZeroUsize::new(2).unwrap(), &paths[2]);
        assert_eq!(paths.each_ref().map(|path| path.exists()), [false, true, true]);
        // After the clock was set back.
        fs::write(&paths[0], "").unwrap();
        folder.keep_newest(NonZeroUsize::new(2).unwrap(), &paths[0]);
        assert_eq!(paths.each_ref().map(|path| path.exists()), [true, false, true]);
        folder.remove_incomplete();
        assert!(parts.iter().all(|name| !place.path().join(name).exists()));
        assert!(others.iter().all(|name| place.path().join(name).exists()));
    }

    #[test]
    fn a_folder_that_is_missing_has_no_copies() {
        let folder = BackupFolder::new("/no/such/folder".into());
        assert_eq!(folder.newest(), None);
        folder.remove_incomplete();
    }
}
