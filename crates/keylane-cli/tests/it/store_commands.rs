//! `keylane store`: damage is named, a damaged job can be given up, and the rest is salvaged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::{Outcome, finish, subcommand};

/// A folder with a store in it: what `fixtures/46944ce/export.ndjson` has.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let export =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/46944ce/export.ndjson");
        let words = ["import", "--store", "a.db", export.to_str().unwrap()];
        folder.store(&words).expect(0, &[]);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self, words: &[&str]) -> Outcome {
        let mut command = subcommand("store", words);
        command.current_dir(self.0.path());
        finish(command.spawn().unwrap())
    }

    /// Changes one byte of the file, behind the first place where these bytes are.
    fn damage(&self, bytes: &[u8]) {
        let path = self.path("a.db");
        let mut file = fs::read(&path).unwrap();
        let place = file.windows(bytes.len()).position(|window| window == bytes).unwrap();
        file[place + bytes.len()] ^= 1;
        fs::write(&path, file).unwrap();
    }
}

#[test]
fn a_damaged_job_is_named_and_can_be_given_up() {
    let folder = Folder::new();
    folder.store(&["check", "--store", "a.db"]).expect(0, &[]);
    // In the head of a job.
    folder.damage(br#"{"kind":"ha"#);
    let named = folder.store(&["check", "--store", "a.db"]);
    named.expect(1, &[]);
    let line = named.stdout.lines().find(|line| line.starts_with("damaged: the row of job "));
    let job = line.unwrap_or_else(|| panic!("{named:#?}")).rsplit(' ').next().unwrap().to_owned();
    let refused = folder.store(&["export", "--store", "a.db", "half.ndjson"]);
    refused.expect(255, &["the row of job"]);
    assert!(!folder.path("half.ndjson").exists(), "half an export is none");
    let other = if job == "1" { "2" } else { "1" };
    folder.store(&["remove", "--store", "a.db", other]).expect(255, &["is not damaged"]);
    let no_job = folder.store(&["remove", "--store", "a.db", "nojob"]);
    no_job.expect(255, &["JOB: `nojob` is neither", "that `keylane store check` names"]);
    folder.store(&["remove", "--store", "a.db", &job]).expect(0, &[]);
    folder.store(&["check", "--store", "a.db"]).expect(0, &[]);
    folder.store(&["export", "--store", "a.db", "whole.ndjson"]).expect(0, &[]);
    let mode = fs::metadata(folder.path("whole.ndjson")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_store_that_is_missing_is_refused_with_that_of_a_server_without_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("keylane/keylane.db");
    for (is_there, remedy) in [(false, "--store FILE"), (true, own.to_str().unwrap())] {
        if is_there {
            fs::create_dir(own.parent().unwrap()).unwrap();
            fs::write(&own, "").unwrap();
        }
        for words in [&["check"][..], &["backup", "copy.db"]] {
            let mut command = subcommand("store", words);
            command.current_dir(folder.path()).env("XDG_DATA_HOME", folder.path());
            let missing = finish(command.spawn().unwrap());
            missing.expect(255, &["there is no store keylane.db", remedy]);
        }
    }
}

#[test]
fn readable_records_are_salvaged() {
    let folder = Folder::new();
    folder.damage(br#"{"kind":"ha"#);
    let salvaged = folder.store(&["salvage", "a.db", "b.db"]);
    assert_ne!(salvaged.code, 0, "{salvaged:#?}");
    assert!(salvaged.stdout.contains("lost: the row of job "), "{salvaged:#?}");
    folder.store(&["check", "--store", "b.db"]).expect(0, &[]);
    folder.store(&["export", "--store", "b.db", "rest.ndjson"]).expect(0, &[]);
    let jobs = |name: &str| {
        let text = fs::read_to_string(folder.path(name)).unwrap();
        text.lines().filter(|line| line.starts_with(r#"{"job":"#)).count()
    };
    let export = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/46944ce/export.ndjson");
    fs::copy(export, folder.path("all.ndjson")).unwrap();
    assert_eq!(jobs("rest.ndjson") + 1, jobs("all.ndjson"));
    folder.store(&["salvage", "a.db", "b.db"]).expect(255, &["exists; name a new file"]);
}
