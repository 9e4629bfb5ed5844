//! Old names of options and configuration keys have their effect, and a warning that gives the new name.

use std::fs;

use crate::common::{Outcome, feed, subcommand};

const OLD_NULL: &str = "warning: `--null` is an old name, write `--null-value`";

#[test]
fn an_old_option_has_its_effect_and_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["journal:a", "--key", "1", "--null", "NA"];
    let mut command = subcommand("produce", words);
    command.current_dir(folder.path());
    feed(command, b"a\nNA\n").expect(0, &[OLD_NULL]);
}

#[test]
fn an_option_by_both_names_is_an_error() {
    let words = ["--null-value", "a", "--key", "1", "--null", "b", "journal:a"];
    let outcome = feed(subcommand("produce", words), b"a\n");
    outcome.expect(255, &["`--null` is the old name of `--null-value`", "leave out `--null`"]);
    assert_eq!(outcome.stdout, "");
}

/// Calls a subcommand with a file of this text as its configuration.
fn with_file(subcommand_words: &[&str], text: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.toml"), text).unwrap();
    let mut command = subcommand(subcommand_words[0], &subcommand_words[1..]);
    command.current_dir(folder.path());
    feed(command, b"1\n2\n")
}

#[test]
fn old_keys_of_the_consumer_have_their_effect_and_a_warning() {
    let consume = ["consume", "-", "--order", "none", "--config", "a.toml", "--", "cat"];
    let old = "\nmost-records = 0\n";
    let outcome = with_file(&consume, old);
    outcome
        .expect(255, &["warning: a.toml:2: `most-records` is an old name, write `max-in-flight`"]);
    outcome.expect(255, &["--max-in-flight is 1 at least"]);
    let check = ["config", "check", "a.toml"];
    with_file(&check, old).expect(255, &["a.toml:2: --max-in-flight is 1 at least"]);
    let both = with_file(&check, "stop-within = \"1s\"\nshutdown-timeout = \"1s\"\n");
    both.expect(255, &["a.toml:1: `stop-within` is the old name of `shutdown-timeout`"]);
}

#[test]
fn old_keys_of_the_server_have_their_effect_and_a_warning() {
    let check = ["serve", "--config", "a.toml", "--check"];
    let kind = "[kinds.a]\nlog_bytes = \"257K\"\ncommand = [\"cat\"]\n";
    let outcome = with_file(&check, kind);
    outcome.expect(255, &["warning: a.toml:2: `log_bytes` is an old name, write `max_log_bytes`"]);
    outcome.expect(255, &["`max_log_bytes` is at most 262144 bytes"]);
    let both = with_file(&check, "[server]\nmost_store = \"1G\"\nmax_store_bytes = \"2G\"\n");
    let named = ["line 2", "`most_store` is the old name of `max_store_bytes`"];
    both.expect(255, &named);
}
