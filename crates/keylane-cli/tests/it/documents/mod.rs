//! The documents are true where a program can tell: links and anchors resolve, every page is in the book, Rust blocks
//! are compiled as doctests, shell blocks use options that the command has, and the quick start and the first job of `keylane serve` do what they
//! show.

mod book;
pub(crate) mod commands;
mod first_job;
mod language;
mod links;
mod page;
mod quick_start;

use std::fs;
use std::path::{Path, PathBuf};

use page::Page;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> Page {
    let text = fs::read_to_string(root().join(path));
    Page::new(path, &text.unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// Pages of the book, `SUMMARY.md` included.
fn book_pages() -> Vec<Page> {
    let mut paths = Vec::new();
    find_pages(&root(), Path::new("docs"), &mut paths);
    paths.iter().map(|path| read(path)).collect()
}

/// Pages of the book, and the other pages for readers from outside.
fn all_pages() -> Vec<Page> {
    let mut paths: Vec<_> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(str::to_owned)
        .into();
    for folder in ["docs", "examples", "bench-compare", "crates"] {
        find_pages(&root(), Path::new(folder), &mut paths);
    }
    paths.iter().map(|path| read(path)).collect()
}

fn find_pages(root: &Path, folder: &Path, found: &mut Vec<String>) {
    // Generated trees, and files of older versions that tests keep as they were.
    const SKIPPED: [&str; 3] = ["target", "node_modules", "fixtures"];
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                find_pages(root, &path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path.to_str().unwrap().to_owned());
        }
    }
}

#[track_caller]
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
