//! `--dead-letters`: failed records as lines of JSON in a file, in the form of `keylane consume`.

use anyhow::Context;

use super::failed_records::FailedRecords;

#[cfg(feature = "consume")]
pub(super) use of_streams::RunDeadLetters;

#[cfg(not(feature = "consume"))]
pub(super) use without_streams::RunDeadLetters;

/// Returns the path in `file:PATH`.
fn path_of(place: &str) -> anyhow::Result<&str> {
    place.strip_prefix("file:").filter(|path| !path.is_empty()).with_context(|| {
        format!("--dead-letters {place}: `keylane run` writes them to a file; write file:PATH")
    })
}

#[cfg(feature = "consume")]
mod of_streams {
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};
    use std::time::SystemTime;

    use keylane_stream::dead_letters::{DeadLetter, DeadLetters, FileDeadLetters};
    use keylane_stream::{Partition, Position, Record};

    use super::super::failed_records::FailedRecord;
    use super::*;

    /// File for dead letters.
    #[derive(Debug)]
    pub(in crate::run) struct RunDeadLetters {
        file: Mutex<FileDeadLetters>,
        path: PathBuf,
        /// The input.
        origin: Partition,
    }

    impl RunDeadLetters {
        /// Opens the file, so that an error is reported before any command starts.
        pub(in crate::run) fn open(place: &str, input: &str) -> anyhow::Result<Self> {
            let path = PathBuf::from(path_of(place)?);
            let file = FileDeadLetters::open(&path)
                .with_context(|| format!("cannot write dead letters to {}", path.display()))?;
            Ok(RunDeadLetters { file: Mutex::new(file), path, origin: Partition::new(input, 0) })
        }

        /// Writes the letters of records, and returns when they are on the disk.
        pub(in crate::run) fn write(
            &self,
            failed: &FailedRecords<'_>,
            why: &str,
        ) -> anyhow::Result<()> {
            let now = SystemTime::now();
            let key = failed.keys.all().next().map(|key| key.bytes().to_vec());
            let letter = |record: &FailedRecord<'_>| DeadLetter {
                partition: self.origin.clone(),
                position: Position::new(record.place.number),
                written: now,
                record: Record {
                    key: key.clone().map(Into::into),
                    payload: Some(record.raw.to_vec().into()),
                    headers: Vec::new(),
                },
                failure: why.to_owned(),
                attempts: failed.attempts,
                failed_at: now,
            };
            let letters: Vec<_> = failed.records.iter().map(letter).collect();
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write(&letters).map_err(anyhow::Error::new).with_context(|| {
                format!(
                    "cannot write a dead letter to {}; make room on its disk",
                    self.path.display()
                )
            })
        }
    }
}

#[cfg(not(feature = "consume"))]
mod without_streams {
    use super::*;

    /// Dead letters are in the build with the feature `consume` only.
    #[derive(Debug)]
    pub(in crate::run) enum RunDeadLetters {}

    impl RunDeadLetters {
        pub(in crate::run) fn open(place: &str, _input: &str) -> anyhow::Result<Self> {
            path_of(place)?;
            anyhow::bail!(
                "this build has no dead letters; build it with the default features, which have `consume`: {}",
                crate::features::command_with("consume")
            )
        }

        pub(in crate::run) fn write(
            &self,
            _failed: &FailedRecords<'_>,
            _why: &str,
        ) -> anyhow::Result<()> {
            match *self {}
        }
    }
}
