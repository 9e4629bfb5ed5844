//! Copies of a store after a power failure: a backup, an export or a salvaged store has its name
//! only when it is complete, and keeps it once the call has returned.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use keylane_service::store::{Store, StoreSettings};
use keylane_testkit::Random;
use keylane_testkit::power_loss::{Crashed, Recording, SyncPoint, Trace, check_all, check_needed};

use crate::store_support::{NOW, accepted};

const NAME: &str = "a.store";

/// A copy is complete if it has all jobs.
const JOBS: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Copied {
    Backup,
    Export,
    Salvage,
}

impl Copied {
    const ALL: [Copied; 3] = [Copied::Backup, Copied::Export, Copied::Salvage];

    fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Copies a store in all ways. The note of a copy is its place in `ALL`.
fn copied(seed: u64) -> (Trace, ()) {
    let mut random = Random::new(seed);
    let recording = Recording::start();
    let path = recording.folder().join(NAME);
    let (store, _) = Store::open(&path, &StoreSettings::default()).unwrap();
    for _ in 0..JOBS {
        accepted(&store, 1 + random.below(30) as u32);
    }
    let to = |copied: Copied| recording.folder().join(copied.name());
    store.backup(to(Copied::Backup)).unwrap();
    recording.note(0);
    store.export_file(to(Copied::Export)).unwrap();
    recording.note(1);
    drop(store);
    Store::salvage(&path, to(Copied::Salvage), NOW).unwrap();
    recording.note(2);
    (recording.finish(), ())
}

fn check(crashed: &Crashed, (): &()) -> Result<(), String> {
    for (note, copied) in (0..).zip(Copied::ALL) {
        let path = crashed.folder().join(copied.name());
        if !path.exists() {
            if crashed.notes().contains(&note) {
                return Err(format!("{copied:?} is lost"));
            }
            continue;
        }
        let jobs = match copied {
            Copied::Backup | Copied::Salvage => jobs_of(&path),
            Copied::Export => imported(&path),
        };
        match jobs.map_err(|why| format!("{copied:?}: {why}"))? {
            JOBS => {}
            jobs => return Err(format!("{copied:?} has {jobs} jobs")),
        }
    }
    Ok(())
}

fn jobs_of(path: &Path) -> Result<u64, String> {
    let report = Store::inspect(path).map_err(|error| error.to_string())?;
    match report.damage.first() {
        Some(damage) => Err(damage.to_string()),
        None => Ok(report.jobs),
    }
}

fn imported(path: &Path) -> Result<u64, String> {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(folder.path().join("new"), &StoreSettings::default()).unwrap();
    let mut file = BufReader::new(File::open(path).unwrap());
    store.import(&mut file).map_err(|error| error.to_string())
}

#[test]
fn a_copy_is_complete_or_absent() {
    check_all(20, copied, check);
}

#[test]
fn the_sync_of_the_content_is_needed() {
    for copied_as in Copied::ALL {
        let part = format!("{}-part", copied_as.name());
        let content = |sync: SyncPoint<'_>| sync == SyncPoint::File(&part);
        check_needed(&format!("the sync of {part}"), content, copied, check);
    }
}

#[test]
fn the_sync_of_the_name_is_needed() {
    let name = |sync: SyncPoint<'_>| sync == SyncPoint::Folder;
    check_needed("the sync of the folder", name, copied, check);
}
