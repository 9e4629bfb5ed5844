//! Checks that the tests which docs/guarantees.md names for each guarantee exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[test]
fn every_guarantee_has_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| G")).collect();
    let mut sources = BTreeMap::new();
    let mut wrong = Vec::new();
    for (number, row) in (1..).zip(&rows) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!((cells.len(), cells[0]), (5, &*format!("G{number}")), "{row}");
        // Each guarantee has a test without a broker and one with a broker.
        let [without, _, with] = cells[2..] else { unreachable!("there are five cells") };
        for cell in [without, with] {
            if !cell.contains('`') {
                wrong.push(format!("{}: no test", cells[0]));
            }
        }
        for test in row.split('`').skip(1).step_by(2) {
            let (file, name) = test.rsplit_once("::").expect("a test is in a file");
            let source = sources.entry(file.to_owned()).or_insert_with(|| read(&root, file));
            if !source.contains(&format!("fn {name}(")) {
                wrong.push(format!("{}: there is no {test}", cells[0]));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/guarantees.md:\n{}", wrong.join("\n"));
    assert_eq!(rows.len(), 14, "the table is not where it was");
}

/// Returns the text of a test file of this crate, or `crate/file` of another.
fn read(root: &Path, file: &str) -> String {
    let (folder, file) = file.split_once('/').unwrap_or(("keylane-stream", file));
    let path = root.join("crates").join(folder).join("tests/it").join(file);
    fs::read_to_string(path.with_extension("rs")).unwrap_or_default()
}
