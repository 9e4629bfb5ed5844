//! `keylane serve` that cannot start says why, where, and what to do about it, and leaves nothing behind.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::common::served::{Place, Served, refused};
use crate::common::subcommand;

const HELLO: &str = "[kinds.hello]\ncommand = [\"cat\"]\n";

struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = text.replace("DIR", folder.path().to_str().unwrap());
        fs::write(folder.path().join("keylane.toml"), text).unwrap();
        File { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starting with it and checking it both fail, and say this.
    #[track_caller]
    fn is_refused(&self, said: &[&str]) {
        let (config, store) = (self.path("keylane.toml"), self.path("tasks.db"));
        for check in [&[][..], &["--check"]] {
            let words = [&["--store", store.to_str().unwrap()], check].concat();
            let outcome = refused(&config, &words);
            outcome.expect(255, said);
            assert_eq!(outcome.stdout, "", "{outcome:#?}");
            assert!(!outcome.stderr.contains("panicked"), "{outcome:#?}");
        }
        assert!(!store.exists(), "nothing is there before all is well");
    }
}

/// A start would find it with the first job.
#[test]
fn a_check_looks_at_programs_and_placeholders() {
    let check = |text: &str| refused(&File::new(text).path("keylane.toml"), &["--check"]);
    for (text, place) in [
        ("[kinds.a]\ncommand = [\"./no-such-program\"]\n", "kinds.a: `./no-such-program`"),
        (
            "[kinds.a]\nlease = \"30s\"\nsplit = { worker = [\"no-such-one\"] }\n",
            "kinds.a.split: `no-such-one`",
        ),
    ] {
        check(text).expect(255, &[place, "cannot be run"]);
    }
    let noted = check("[kinds.a]\ncommand = [\"cat\", \"{key}\", \"{foo}\"]\n");
    let said = &noted.expect(0, &[]).stdout;
    assert!(
        said.contains("note: kinds.a: `{foo}` is no placeholder")
            && said.contains("the configuration is valid"),
        "{said}"
    );
    assert!(!said.contains("`{key}` is no"), "{said}");
    let words = ["--kind", "a=cat", "--check"];
    let checked = crate::common::feed(subcommand("serve", words), b"");
    assert_eq!(checked.expect(0, &[]).stdout, "the command line: the configuration is valid\n");
}

#[test]
fn errors_in_the_file_have_its_line() {
    let path = "keylane.toml is not right";
    for (text, said) in [
        ("[server]\nslots = 4\nslot = 3\n", &["line 3", "unknown field `slot`", "`slots`"][..]),
        ("\n[kinds.a]\ncomand = [\"cat\"]\n", &["line 3", "unknown field `comand`", "`command`"]),
        ("[servers]\n", &["line 1", "unknown field `servers`"]),
        ("[kinds.a]\nlimits = { memry = \"1G\" }\n", &["line 2", "unknown field `memry`"]),
        ("[server]\nlisten = \"here\"\n", &["line 2", "listen"]),
        ("[server]\nslots = \"many\"\n", &["line 2", "slots"]),
        ("[kinds.a]\nrate = \"fast\"\n", &["line 2", "write 100/s, 30/m or 500/h"]),
        ("[kinds.a]\nbackoff = \"1m..1s\"\n", &["line 2", "longer than the longest"]),
        ("[server]\nretention = \"a while\"\n", &["line 2", "write 12h, 7d or forever"]),
        ("[server]\nmax_body_bytes = \"8MB\"\n", &["line 2", "write 64K, 512M or 2G"]),
        ("[kinds.a\n", &["line 1"]),
    ] {
        File::new(text).is_refused(&[&[path], said].concat());
    }
}

#[test]
fn conflicting_settings_are_refused_with_a_remedy() {
    let no_tokens = format!("[server]\nlisten = \"0.0.0.0:0\"\n{HELLO}");
    let half = format!("[server]\ntls_key = \"DIR/key.pem\"\n{HELLO}");
    let no_papers = format!(
        "[server]\ntls_key = \"DIR/key.pem\"\ntls_certificates = \"DIR/cert.pem\"\n{HELLO}"
    );
    for (text, said) in [
        ("", &["there is no kind of job", "[kinds.hello]"][..]),
        ("[kinds.a]\n", &["kinds.a", "`command`, `worker`, `http` or `lease`"]),
        (
            "[kinds.a]\ncommand = [\"cat\"]\nhttp = \"http://localhost:1/\"\n",
            &["kinds.a", "one of"],
        ),
        ("[kinds.a]\ncommand = []\n", &["kinds.a", "a program"]),
        ("[kinds.a]\nhttp = \"ftp://a\"\n", &["kinds.a", "not http"]),
        ("[kinds.a]\ncommand = [\"cat\"]\nburst = 2\n", &["kinds.a: `burst`", "add `rate`"]),
        ("[kinds.a]\nlease = \"1s\"\nenv = [\"PATH\"]\n", &["kinds.a: `env`", "leave it out"]),
        (&no_tokens, &["0.0.0.0:0", "no tokens are set", "listen on 127.0.0.1"]),
        (&half, &["`tls_certificates` and `tls_key` go together"]),
        (&no_papers, &["cert.pem"]),
    ] {
        File::new(text).is_refused(said);
    }
}

#[test]
fn tokens_that_others_can_read_or_that_make_no_sense_are_refused() {
    let file = File::new(&format!("[server]\ntokens = \"DIR/tokens\"\n{HELLO}"));
    file.is_refused(&["tokens"]);
    let tokens = file.path("tokens");
    fs::write(&tokens, "ci submit plain:0123456789abcdef\n").unwrap();
    let open_to = |mode| fs::set_permissions(&tokens, fs::Permissions::from_mode(mode)).unwrap();
    open_to(0o640);
    file.is_refused(&["other users can read or change", "chmod 600"]);
    open_to(0o600);
    fs::write(&tokens, "# who\nci boss plain:0123456789abcdef\n").unwrap();
    file.is_refused(&["line 2", "the roles are read, submit, worker, operate and admin"]);
}

#[test]
fn a_file_that_is_right_is_only_looked_at() {
    let file = File::new(&format!("[server]\nstore = \"DIR/tasks.db\"\n{HELLO}"));
    let config = file.path("keylane.toml");
    let outcome = refused(&config, &["--check"]);
    assert!(outcome.expect(0, &[]).stdout.contains("the configuration is valid"), "{outcome:?}");
    assert!(!file.path("tasks.db").exists());
    let nowhere = refused(&file.path("other.toml"), &[]);
    nowhere.expect(255, &["cannot read", "other.toml"]);
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let file =
        File::new(&format!("[server]\nlisten = \"{address}\"\nstore = \"DIR/tasks.db\"\n{HELLO}"));
    let outcome = refused(&file.path("keylane.toml"), &[]);
    outcome.expect(255, &[&format!("cannot listen on {address}"), "in use", "--listen"]);
    // The store was let go of, and the next one has it, at an address of its own.
    let config = fs::read_to_string(file.path("keylane.toml")).unwrap();
    let config = config.replace(&address.to_string(), "127.0.0.1:0");
    fs::write(file.path("keylane.toml"), config).unwrap();
    Served::with_config(&file.path("keylane.toml"), &[]).kill();
}

#[test]
fn what_is_in_the_way_of_a_store_is_named_with_its_path() {
    let folder = |name: &str| format!("[server]\nstore = \"DIR/{name}\"\n{HELLO}");
    let missing = File::new(&folder("missing/tasks.db"));
    let said = ["cannot find the folder of the store", "missing/tasks.db"];
    refused(&missing.path("keylane.toml"), &[]).expect(255, &said);
    // A folder in the place of a file cannot be read as one, by any user.
    let file = File::new(&folder("tasks.db"));
    fs::create_dir(file.path("tasks.db-mark")).unwrap();
    let said = ["cannot open the mark", "tasks.db-mark"];
    refused(&file.path("keylane.toml"), &[]).expect(255, &said);
}

#[test]
fn a_key_that_others_can_read_is_warned_of() {
    let papers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../keylane-service/tests/papers");
    let certificates = papers.join("own-cert.pem");
    // There is no folder for the store, so the start ends after the warning.
    let file = File::new(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nstore = \"DIR/missing/tasks.db\"\n\
         tls_certificates = {certificates:?}\ntls_key = \"DIR/key.pem\"\n{HELLO}"
    ));
    let key = file.path("key.pem");
    fs::copy(papers.join("own-key.pem"), &key).unwrap();
    for (mode, is_warned_of) in [(0o604, true), (0o640, false)] {
        fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        let outcome = refused(&file.path("keylane.toml"), &[]);
        outcome.expect(255, &["missing/tasks.db"]);
        let warning = "other users may read the key of `tls_key`; run `chmod o= ";
        assert_eq!(outcome.stderr.contains(warning), is_warned_of, "{mode:o} {outcome:#?}");
    }
}

#[test]
fn a_store_has_one_server_and_the_other_is_told_which() {
    let place = Place::new("");
    let server = Served::start(&place, &[]);
    let outcome = refused(&place.path("config.toml"), &[]);
    let pid = server.pid().to_string();
    outcome.expect(255, &["tasks.db", "in use", &pid]);
    // Nor do other commands take it from under the server.
    let config = place.path("config.toml");
    let check = subcommand("store", ["check", "--config", config.to_str().unwrap()]);
    crate::common::feed(check, b"").expect(255, &["tasks.db", &pid]);
    // A killed server locks no other out.
    server.kill();
    Served::start(&place, &[]).kill();
}
