//! Comments and names keep to the rules of plain language that CONTRIBUTING.md lists. Documents have a test of their
//! own in keylane-cli.
//!
//! The subject of a sentence is a thing, not a person; a count is "at most `n`"; a bound is `MAX_*`. Lists of exceptions
//! may only shrink.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that hide the subject of a sentence, or a number.
const AVOIDED: [&str; 7] =
    ["who", "whoever", "nobody", "somebody", "so many", "what becomes", "what became"];

/// Maximum number of comment lines with an avoided word, by crate. Numbers go down, never up.
const COMMENTS: [(&str, usize); 1] = [("keylane-allocate", 2)];

#[test]
fn comments_name_things_and_numbers() {
    let mut wrong = Vec::new();
    for (name, folder) in crates() {
        let mut found = Vec::new();
        for file in files(&folder, "rs") {
            let text = fs::read_to_string(&file).unwrap();
            let lines = (1..).zip(text.lines()).filter(|(_, line)| {
                let line = line.trim_start();
                line.starts_with("//") && has_avoided(line)
            });
            found.extend(lines.map(|(number, line)| format!("{}:{number}:{line}", file.display())));
        }
        report(&name, found, &COMMENTS, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bounds_are_named_max() {
    let mut wrong = Vec::new();
    for (name, folder) in crates() {
        let mut found = Vec::new();
        for file in files(&folder, "rs") {
            let text = fs::read_to_string(&file).unwrap();
            let lines = (1..).zip(text.lines()).filter(|(_, line)| {
                ["const MOST_", "const LONGEST_", "static MOST_", "static LONGEST_"]
                    .iter()
                    .any(|start| line.contains(start))
            });
            found.extend(lines.map(|(number, line)| format!("{}:{number}:{line}", file.display())));
        }
        report(&name, found, &[], &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Adds the lines found, if they are more than the known number.
fn report(name: &str, found: Vec<String>, known: &[(&str, usize)], wrong: &mut Vec<String>) {
    let known = known.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
    if found.len() > known {
        wrong.push(format!("{name}: {} lines, at most {known} are allowed", found.len()));
        wrong.extend(found);
    }
}

/// Returns whether the line contains an avoided word, as a word.
fn has_avoided(line: &str) -> bool {
    let line = line.to_lowercase();
    AVOIDED.iter().any(|avoided| {
        line.match_indices(avoided).any(|(at, _)| {
            let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
            let (before, after) = (&line[..at], &line[at + avoided.len()..]);
            !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
        })
    })
}

fn crates() -> Vec<(String, PathBuf)> {
    let folders = fs::read_dir(root().join("crates")).unwrap();
    let paths = folders.map(|folder| folder.unwrap().path());
    paths.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

/// Returns all files below a folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == extension)
                && !path.ends_with("tidy.rs")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
