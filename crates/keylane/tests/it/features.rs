//! docs/features.md promises a test for each feature: they are all there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_feature_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/features.md")).unwrap();
    let rows = text.lines().filter_map(row).filter(|row| row.feature != "feature");
    let mut sources = BTreeMap::new();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for row in rows {
        count += 1;
        let tests = quoted(row.tests);
        if tests.is_empty() {
            wrong.push(format!("{}: no test", row.feature));
        }
        for test in tests {
            let (file, name) = test.rsplit_once("::").unwrap_or((test, ""));
            let source = sources.entry(file.to_owned()).or_insert_with(|| read(&root, file));
            let is_there = ["(", "<"].iter().any(|end| source.contains(&format!("fn {name}{end}")));
            if name.is_empty() || !is_there {
                wrong.push(format!("{}: there is no {test}", row.feature));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/features.md:\n{}", wrong.join("\n"));
    assert!(count >= 50, "the table is not where it was");
}

struct Row<'a> {
    feature: &'a str,
    tests: &'a str,
}

/// A row of a table with three columns.
fn row(line: &str) -> Option<Row<'_>> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let (feature, _, tests) = (cells.next()?, cells.next()?, cells.next()?);
    assert!(cells.next().is_none(), "one cell too many: {line}");
    Some(Row { feature, tests })
}

/// Texts between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A file of tests of this crate, or a folder of them, or `crate/file` of another or of an example.
fn read(root: &Path, file: &str) -> String {
    let path: PathBuf = match file.rsplit_once('/') {
        None => root.join("crates/keylane/tests/it").join(file),
        Some((folder, file)) if folder.starts_with("examples/") => {
            root.join(folder).join("tests").join(file)
        }
        Some((folder, file)) => root.join("crates").join(folder).join("tests/it").join(file),
    };
    let alone = fs::read_to_string(path.with_extension("rs"));
    let folder = || fs::read_to_string(path.join("mod.rs"));
    // A test that changes its whole process is a program of its own.
    let beside =
        || fs::read_to_string(root.join("crates/keylane/tests").join(file).with_extension("rs"));
    alone.or_else(|_| folder()).or_else(|_| beside()).unwrap_or_default()
}
