//! Registry of the kinds of a service: as configured, with the changes of operators.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use crate::kind::Kind;
use crate::kind_override::KindOverride;

/// Registry of kinds by name and by number. A kind can be replaced at run time and keeps its
/// number.
#[derive(Debug, Default)]
pub(crate) struct KindRegistry {
    /// Innermost lock, held briefly.
    table: RwLock<KindMap>,
}

#[derive(Debug, Default)]
struct KindMap {
    all: Vec<KindEntry>,
    /// Numbers of present, removed and reserved kinds.
    by_name: HashMap<Arc<str>, u32>,
}

impl KindMap {
    fn insert(&mut self, name: &str, configured: Arc<Kind>, is_there: bool) -> u32 {
        let number = u32::try_from(self.all.len()).expect("kinds are fewer than 2^32");
        let name: Arc<str> = name.into();
        self.by_name.insert(Arc::clone(&name), number);
        let (kind, changed) = (Arc::clone(&configured), Arc::default());
        self.all.push(KindEntry { number, name, kind, configured, changed, is_there });
        number
    }
}

/// Kind with its number.
#[derive(Clone, Debug)]
pub(crate) struct KindEntry {
    pub(crate) number: u32,
    pub(crate) name: Arc<str>,
    /// The kind as it is in force: as configured, with the changes of operators.
    pub(crate) kind: Arc<Kind>,
    pub(crate) configured: Arc<Kind>,
    pub(crate) changed: Arc<KindOverride>,
    /// False for a kind that was removed or is not configured: its jobs wait until a kind of its
    /// name is added.
    pub(crate) is_there: bool,
}

impl KindEntry {
    fn apply(&mut self) {
        self.kind = match self.changed.is_empty() {
            true => Arc::clone(&self.configured),
            false => Arc::new(self.changed.applied(&self.configured)),
        };
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.changed.paused.is_some()
    }
}

impl KindRegistry {
    fn read(&self) -> RwLockReadGuard<'_, KindMap> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a kind, or replaces the kind of its name. Returns the replaced kind.
    pub(crate) fn add(&self, name: &str, kind: Kind) -> Option<Arc<Kind>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let kind = Arc::new(kind);
        if let Some(&number) = table.by_name.get(name) {
            let entry = &mut table.all[number as usize];
            entry.is_there = true;
            let replaced = std::mem::replace(&mut entry.configured, kind);
            entry.apply();
            return Some(replaced);
        }
        table.insert(name, kind, true);
        None
    }

    /// Returns the number of a kind, and gives one to a name that is not configured, so that a kind
    /// that is added later has the number of the jobs that wait for it.
    pub(crate) fn reserve(&self, name: &str) -> u32 {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = table.by_name.get(name) {
            return number;
        }
        // Nothing reads the settings of a kind that is not present, because none of its jobs runs.
        table.insert(name, Arc::new(Kind::leased(Duration::ZERO)), false)
    }

    /// Marks the kind as removed.
    pub(crate) fn remove(&self, number: u32) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.all[number as usize].is_there = false;
    }

    /// Number of a present kind.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let table = self.read();
        let number = table.by_name.get(name).copied();
        number.filter(|number| table.all[*number as usize].is_there)
    }

    /// Replaces the changes of a kind, which may not be configured.
    pub(crate) fn change(&self, name: &str, changed: KindOverride) -> KindEntry {
        let number = self.reserve(name);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let entry = &mut table.all[number as usize];
        entry.changed = Arc::new(changed);
        entry.apply();
        entry.clone()
    }

    /// Returns a kind with its configuration and its changes.
    pub(crate) fn entry(&self, number: u32) -> KindEntry {
        self.read().all[number as usize].clone()
    }

    pub(crate) fn get(&self, number: u32) -> Arc<Kind> {
        Arc::clone(&self.read().all[number as usize].kind)
    }

    pub(crate) fn name(&self, number: u32) -> Arc<str> {
        Arc::clone(&self.read().all[number as usize].name)
    }

    /// Present kinds.
    pub(crate) fn present(&self) -> Vec<KindEntry> {
        self.read().all.iter().filter(|entry| entry.is_there).cloned().collect()
    }

    /// Present, removed and reserved kinds.
    pub(crate) fn all(&self) -> Vec<KindEntry> {
        self.read().all.clone()
    }
}
