//! The files of a store: for their owner alone, within their bounds, without what was removed, and open once.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::store_support::{NOW, accepted, new_job, new_store, open, outcome, place};
use keylane_service::store::{
    Changes, JobState, JobStatus, OutcomeKind, Store, StoreOpenError, StoreSettings, WriteError,
};

const MIB: u64 = 1024 * 1024;

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

fn log_bytes(path: &Path) -> u64 {
    fs::metadata(beside(path, "-wal")).map_or(0, |file| file.len())
}

#[test]
fn files_are_for_their_owner_alone() {
    let (folder, path) = place();
    let store = new_store(&path);
    accepted(&store, 3);
    let copy = folder.path().join("copy");
    store.backup(&copy).unwrap();
    let mut seen = 0;
    for file in fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.file_name());
        seen += 1;
    }
    assert_eq!(
        seen, 7,
        "the store, its log and index, mark, number of openings, lock, and the copy"
    );
    assert!(!store.is_exposed());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(store.is_exposed());
}

/// Each small transaction writes whole pages into the log, far more bytes than it is about.
#[test]
fn the_log_is_bounded_by_its_own_bytes() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 4000);
    for number in 0..4000 {
        let mut changes = Changes::new();
        changes.ended(job, outcome(number, OutcomeKind::Succeeded));
        let _ = store.submit(changes).wait().unwrap();
    }
    assert!(log_bytes(&path) < 20 * MIB, "{}", log_bytes(&path));
}

/// Readers one after another left no moment without one, and the log grew with every byte that was written.
#[test]
fn readers_do_not_keep_the_log_from_its_bound() {
    let (_folder, path) = place();
    let store = new_store(&path);
    accepted(&store, 100);
    let is_over = AtomicBool::new(false);
    let mut purges = Vec::new();
    let most = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let page = store.jobs(&Default::default(), None, 9999).unwrap();
                    assert_eq!(page.damaged, []);
                }
            });
        }
        let mut most = 0;
        for _ in 0..60 {
            let mut upload = store.upload(NOW).unwrap();
            let job = upload.job();
            upload.push(&["key"], &[7; 2 * MIB as usize]).unwrap();
            upload.finish(new_job(job)).wait().unwrap();
            let mut changes = Changes::new();
            changes.status(job, JobStatus::of(JobState::Cancelled));
            drop(store.submit(changes));
            let mut changes = Changes::new();
            changes.purge(job);
            // What is purged is written over, which goes into the log as well.
            purges.push(store.submit(changes));
            most = most.max(log_bytes(&path));
        }
        is_over.store(true, Ordering::Relaxed);
        most
    });
    for purged in purges {
        let _ = purged.wait().unwrap();
    }
    // Twice 120 MiB were written. On a busy machine a reader takes longer than a moment, and then is waited for.
    assert!(most < 72 * MIB, "{most}");
}

#[test]
fn the_log_counts_as_part_of_the_store() {
    let (_folder, path) = place();
    let most = 4 * MIB;
    let settings = StoreSettings { max_bytes: Some(most), ..StoreSettings::default() };
    let (store, _recovered) = Store::open(&path, &settings).unwrap();
    let mut written = 0;
    loop {
        let mut upload = store.upload(NOW).unwrap();
        let job = upload.job();
        upload.push(&["key"], &[7; 100_000]).unwrap();
        match upload.finish(new_job(job)).wait() {
            Ok(_) => written += 1,
            Err(error) => break assert_eq!(error, WriteError::Full),
        }
        let on_disk = fs::metadata(&path).unwrap().len() + log_bytes(&path);
        assert_eq!(store.bytes(), on_disk);
        assert!(on_disk <= most + MIB, "{on_disk}");
    }
    assert!(written > 25, "{written}");
}

#[test]
fn what_is_purged_leaves_the_files() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let secret = b"of this nothing may stay behind";
    let mut upload = store.upload(NOW).unwrap();
    let job = upload.job();
    upload.push(&["key"], secret).unwrap();
    upload.push(&["key"], &secret.repeat(2000)).unwrap();
    upload.push(&["key"], &[secret.as_slice(), &[7; 300_000]].concat()).unwrap();
    upload.finish(new_job(job)).wait().unwrap();
    let mut changes = Changes::new();
    let mut ended = outcome(0, OutcomeKind::Succeeded);
    ended.result = secret.to_vec();
    changes.ended(job, ended);
    changes.status(job, JobStatus::of(JobState::Cancelled));
    store.submit(changes).wait().unwrap();
    let finds = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(secret.len()).filter(|bytes| bytes == secret).count()
    };
    assert!(finds(&beside(&path, "-wal")) > 1000);
    let mut changes = Changes::new();
    changes.purge(job);
    store.submit(changes).wait().unwrap();
    // The log is emptied before the writer waits for more.
    while finds(&beside(&path, "-wal")) > 0 {
        store.submit(Changes::new()).wait().unwrap();
    }
    assert_eq!(finds(&path), 0);
    let copy = path.with_file_name("copy");
    store.backup(&copy).unwrap();
    assert_eq!(finds(&copy), 0);
}

const PATH: &str = "KEYLANE_STORE_OF_ANOTHER_PROCESS";

/// Whether another process may open it.
fn may_open(path: &Path) -> bool {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "store_files::opens_what_another_process_has", "--nocapture"])
        .env(PATH, path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    said.contains("it is open")
}

/// Not a test of its own: what the child does, in this same program.
#[test]
fn opens_what_another_process_has() {
    let Some(path) = env::var_os(PATH) else { return };
    match Store::open(Path::new(&path), &StoreSettings::default()) {
        Ok(_) => println!("\nit is open"),
        Err(StoreOpenError::InUse { .. }) => println!("\nit is in use"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn two_processes_never_open_one_file() {
    let (folder, path) = place();
    let (store, recovered) = open(&path);
    accepted(&store, 3);
    assert!(!may_open(&path));
    fs::remove_file(beside(&path, "-lock")).unwrap();
    assert!(!may_open(&path));
    let linked = folder.path().join("linked");
    fs::hard_link(&path, &linked).unwrap();
    assert!(!may_open(&linked));
    // Meanwhile SQLite's own locks were not lost.
    assert!(matches!(
        Store::open(&linked, &StoreSettings::default()),
        Err(StoreOpenError::InUse { .. })
    ));
    accepted(&store, 3);
    assert_eq!(store.check().unwrap().damage, []);
    drop((store, recovered));
    fs::remove_file(&linked).unwrap();
    assert!(may_open(&path));
}
