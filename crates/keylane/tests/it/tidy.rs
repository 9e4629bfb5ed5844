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
            let lines = (1..).zip(text.lines()).filter(|(_, line)| has_avoided(comment(line)));
            found.extend(lines.map(|(number, line)| format!("{}:{number}:{line}", file.display())));
        }
        report(&name, found, &COMMENTS, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Maximum number of comment lines with an avoided word, by folder: names of fields that are fixed.
const OTHER_COMMENTS: [(&str, usize); 1] = [("crates/keylane-service/ui", 2)];

/// The part of a line that is tested.
type TestedPart = fn(&str) -> &str;

/// Comments of other languages; and all lines, strings included, of code that users read as examples.
#[test]
fn scripts_examples_and_benchmarks_name_things_and_numbers() {
    let all: TestedPart = |line| line;
    let folders: [(&str, &[(&str, TestedPart)]); 6] = [
        ("crates/keylane-service/ui", &[("js", script_comment), ("mjs", script_comment)]),
        ("crates/keylane-service/benches", &[("py", all)]),
        ("crates/keylane/examples", &[("rs", all)]),
        ("examples", &[("rs", comment), ("py", all)]),
        ("bench-compare/src", &[("rs", all)]),
        ("bench-compare/services", &[("mjs", script_comment)]),
    ];
    let mut wrong = Vec::new();
    for (name, kinds) in folders {
        let mut found = Vec::new();
        for (extension, part) in kinds {
            for file in files(&root().join(name), extension) {
                let text = fs::read_to_string(&file).unwrap();
                let lines = (1..).zip(text.lines()).filter(|(_, line)| has_avoided(part(line)));
                let shown =
                    lines.map(|(number, line)| format!("{}:{number}:{line}", file.display()));
                found.extend(shown);
            }
        }
        report(name, found, &OTHER_COMMENTS, &mut wrong);
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let found = manifest.lines().filter(|line| has_avoided(line)).map(str::to_owned).collect();
    report("Cargo.toml", found, &[], &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the comment of a line of Rust, or nothing: the first slashes outside of a string.
fn comment(line: &str) -> &str {
    let is_outside = |at: usize| line[..at].matches('"').count().is_multiple_of(2);
    let start = line.match_indices("//").map(|(at, _)| at).find(|at| is_outside(*at));
    start.map_or("", |at| &line[at..])
}

/// Returns the comment of a line of JavaScript, or nothing.
fn script_comment(line: &str) -> &str {
    let is_whole = ["//", "/*", "*"].iter().any(|start| line.trim_start().starts_with(start));
    match line.find(" //") {
        _ if is_whole => line,
        Some(at) => &line[at..],
        None => "",
    }
}

#[test]
fn comments_behind_code_are_found() {
    assert_eq!(comment("let a = 1; // nobody"), "// nobody");
    assert_eq!(comment("let a = \"http://nobody\"; // b"), "// b");
    assert_eq!(comment("let a = \"// nobody\";"), "");
    assert_eq!(script_comment("const a = 1; // nobody"), " // nobody");
    assert_eq!(script_comment("get(\"http://nobody\");"), "");
    assert!(has_avoided("so many") && !has_avoided("whole"));
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
