//! Several keys per record, shared keys and barriers in `keylane consume`.

use std::fs;

use crate::common::{Outcome, feed, subcommand};
use tempfile::TempDir;

fn consume(folder: &TempDir, words: &[&str]) -> Outcome {
    let mut command = subcommand("consume", words);
    command.current_dir(folder.path());
    feed(command, b"")
}

/// Each record takes the folders of its accounts, and fails if another record has one of them. The end of the
/// day finds none taken.
const BOOK: &str = r#"
    if test "$3" = end; then test -z "$(ls now)"; exit; fi
    mkdir "now/$1" || exit 1
    test "$1" = "$2" || mkdir "now/$2" || exit 1
    rmdir "now/$1"
    test "$1" = "$2" || rmdir "now/$2"
    echo "$KEYLANE_KEY""#;

fn with_transfers() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("now")).unwrap();
    let line = |n: u32| {
        let (from, to) = (n * 7 % 5, n * 3 % 4);
        let kind = if n % 20 == 19 { "end" } else { "pay" };
        serde_json::json!({"from": from, "to": to, "type": kind, "all": [from, to]}).to_string()
    };
    let lines: String = (0..60).map(|n| line(n) + "\n").collect();
    fs::write(folder.path().join("in"), lines).unwrap();
    folder
}

#[test]
fn a_record_waits_for_the_earlier_ones_of_all_its_keys_and_a_barrier_for_all() {
    let command = ["--attempts", "1", "--", "sh", "-c", BOOK, "sh", "{from}", "{to}", "{type}"];
    let base = ["file:in", "--ndjson", "-j", "6", "--barrier", ".type=end"];
    for keys in [&["--key", ".from", "--key", ".to"][..], &["--key", ".all[]"]] {
        let folder = with_transfers();
        let outcome = consume(&folder, &[&base[..], keys, &command].concat());
        outcome.expect(0, &["60 handled, 0 failed attempts"]);
        // The first key names the record.
        assert_eq!(outcome.stdout.lines().count(), 57);
        consume(&folder, &[&base[..], keys, &command].concat()).expect(0, &["0 handled"]);
    }
}

#[test]
fn keys_of_a_file_of_settings_are_one_or_several() {
    let folder = with_transfers();
    let settings = "source = \"file:in\"\nndjson = true\njobs = 6\nattempts = 1\n\
        key = [\".from\", \".to\"]\nbarrier = \".type=end\"\n";
    fs::write(folder.path().join("c.toml"), settings).unwrap();
    let command = ["--", "sh", "-c", BOOK, "sh", "{from}", "{to}", "{type}"];
    let outcome = consume(&folder, &[&["--config", "c.toml"][..], &command].concat());
    outcome.expect(0, &["60 handled, 0 failed attempts"]);
    fs::write(folder.path().join("c.toml"), "source = \"file:in\"\nkey = \"1\"\n").unwrap();
    fs::remove_file(folder.path().join("in.keylane")).unwrap();
    consume(&folder, &["--config", "c.toml", "--", "true"]).expect(0, &["60 handled"]);
}

/// A record that only shares a key runs beside others that share it: they meet.
#[test]
fn records_that_share_a_key_run_together() {
    let folder = tempfile::tempdir().unwrap();
    crate::common::named_pipe(&folder.path().join("pipe"));
    fs::write(folder.path().join("in"), "r a\nr b\nw c\n").unwrap();
    let meet = r#"
        case $1 in
            a) echo met > pipe ;;
            b) read -r word < pipe ;;
        esac
        echo "$1""#;
    let words = ["file:in", "-j", "3", "--key", "/^w/", "--shared-key", "/^r/", "--key", "2"];
    let words = [&words[..], &["--", "sh", "-c", meet, "sh", "{2}"]].concat();
    let outcome = consume(&folder, &words);
    assert_eq!(outcome.expect(0, &["3 handled"]).sorted(), ["a", "b", "c"]);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let folder = with_transfers();
    let refused = |options: &[&str], why: &str| {
        let words = [&["file:in", "--ndjson"], options, &["--", "true"]].concat();
        consume(&folder, &words).expect(255, &[why]);
    };
    refused(&["--key", ".from", "--order", "none"], "keys are for order by key");
    refused(&["--shared-key", ".from", "--order", "partition"], "keys are for order by key");
    refused(&["--key", ".all[]", "--batch", "2"], "a batch has records of one key");
    refused(&["--key", ".from", "--key", ".to", "--latest"], "latest is for records with one key");
    refused(&["--barrier", ".type=end"], "lines have no key of their own");
    refused(&["--key", ".from", "--barrier", "end"], "FIELD=VALUE");
}
