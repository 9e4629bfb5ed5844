//! Journals of a consumer: each is opened once, whether as source, sink or dead-letter store.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use keylane_stream::journal::Journal;

/// Journals that are open, each with its path in full.
#[derive(Debug, Default)]
pub(super) struct OpenJournals {
    source: Option<PathBuf>,
    targets: Vec<(PathBuf, Journal)>,
}

impl OpenJournals {
    /// The journal that is consumed; it must be there.
    pub(super) fn source(&mut self, path: &Path) -> anyhow::Result<Journal> {
        ensure!(path.exists(), "there is no journal {}; keylane produce makes one", path.display());
        let journal = Journal::open(path)?;
        self.source = Some(fs::canonicalize(path)?);
        Ok(journal)
    }

    /// A journal that is written to, which is not the one that is consumed: that would have no end.
    pub(super) fn target(&mut self, path: &Path) -> anyhow::Result<Journal> {
        if let Ok(full) = fs::canonicalize(path) {
            ensure!(
                self.source.as_ref() != Some(&full),
                "{} is the source; its own output would be consumed; name another journal",
                path.display()
            );
            if let Some((_, open)) = self.targets.iter().find(|(known, _)| *known == full) {
                return Ok(open.clone());
            }
        }
        let journal = Journal::open(path)?;
        self.targets.push((fs::canonicalize(path)?, journal.clone()));
        Ok(journal)
    }
}
