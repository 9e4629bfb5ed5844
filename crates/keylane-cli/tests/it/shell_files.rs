//! Completions and manual pages have every subcommand and option, and their readers accept them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{feed, subcommand};
use crate::documents::commands::Helps;

/// Paths of all subcommands, without the word `help`.
fn all_subcommands(helps: &mut Helps) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut next = 0;
    while next < found.len() {
        let path: Vec<String> = found[next].clone();
        for name in helps.subcommands(&path) {
            if name != "help" {
                found.push([path.clone(), vec![name]].concat());
            }
        }
        next += 1;
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

fn script(shell: &str) -> String {
    let outcome = feed(subcommand("completions", [shell]), b"");
    outcome.expect(0, &[]);
    outcome.stdout
}

#[test]
fn completions_have_every_subcommand_and_option() {
    let mut helps = Helps::default();
    let paths = all_subcommands(&mut helps);
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = script(shell);
        for path in &paths {
            for option in helps.options(path) {
                // fish has options without their dashes: `-s j -l jobs`.
                let name = if shell == "fish" { option.trim_start_matches('-') } else { &option };
                assert!(script.contains(name), "{shell}: {path:?} lacks {option}");
            }
            if let Some(name) = path.last() {
                assert!(script.contains(name), "{shell}: {path:?} is not there");
            }
        }
    }
}

fn bash(arguments: &[&str]) -> String {
    let output = Command::new("bash").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_reads_the_script_and_completes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keylane.bash");
    fs::write(&path, script("bash")).unwrap();
    let path = path.to_str().unwrap();
    bash(&["-n", path]);
    let completed = |words: &str, last: &str| {
        let call = format!(
            "source {path}; COMP_WORDS=(keylane {words} {last}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _keylane keylane '{last}' \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[*]}}\""
        );
        bash(&["-c", &call])
    };
    assert_eq!(completed("run", "--rate-p"), "--rate-per-key\n");
    assert_eq!(completed("run --on-fail", "stop-"), "stop-key\n");
    assert_eq!(completed("", "calib"), "calibrate\n");
}

/// The text of a manual page, if there is a program that formats it.
fn formatted(page: &Path) -> Option<String> {
    let output = Command::new("groff")
        .args(["-k", "-K", "utf8", "-man", "-Tutf8", "-ww", "-P-cbou"])
        .arg(page)
        .output()
        .ok()?;
    assert!(output.status.success() && output.stderr.is_empty(), "{}: {output:?}", page.display());
    String::from_utf8(output.stdout).ok()
}

#[test]
fn manual_pages_have_every_subcommand_and_option() {
    let mut helps = Helps::default();
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    feed(subcommand("man", [&pages]), b"").expect(0, &[]);
    let mut expected = BTreeSet::new();
    for path in all_subcommands(&mut helps) {
        let name = [vec!["keylane".to_owned()], path.clone()].concat().join("-");
        let page = pages.join(format!("{name}.1"));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = formatted(&page).unwrap_or(text).replace("\\-", "-");
        for option in helps.options(&path) {
            assert!(text.contains(&option), "{name}: {option} is not there: {text}");
        }
        for inner in helps.subcommands(&path).iter().filter(|inner| *inner != "help") {
            assert!(
                text.contains(&format!("{name}-{inner}(1)")),
                "{name}: {inner} is not there: {text}"
            );
        }
        assert!(!text.contains("help(1)"), "{name} refers to a page that is not there");
        expected.insert(format!("{name}.1"));
    }
    let there = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(there.collect::<BTreeSet<_>>(), expected);

    let printed = feed(subcommand("man", [""; 0]), b"");
    assert_eq!(printed.expect(0, &[]).stdout, fs::read_to_string(pages.join("keylane.1")).unwrap());
    let blocked = pages.join("keylane.1/man1");
    feed(subcommand("man", [&blocked]), b"").expect(255, &["cannot create the folder"]);
}
