//! The book: its table of contents is complete, and its Rust compiles.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::{all_pages, assert_none, book_pages, read, root};

#[test]
fn the_table_of_contents_has_every_page_once() {
    let link = Regex::new(r"\]\(([^)#]+)\)").unwrap();
    let summary = read("docs/SUMMARY.md");
    let lines = summary.prose.iter();
    let listed = lines
        .flat_map(|(_, line)| link.captures_iter(line))
        .map(|found| format!("docs/{}", &found[1]));
    let mut listed: Vec<_> = listed.collect();
    let mut pages: Vec<_> = book_pages().into_iter().map(|page| page.path).collect();
    pages.retain(|path| path != "docs/SUMMARY.md");
    listed.sort();
    pages.sort();
    assert_eq!(listed, pages);
}

/// Pages that a crate compiles as doctests.
fn compiled() -> BTreeSet<PathBuf> {
    let include = Regex::new(r#"include_str!\("([^"]+\.md)"\)"#).unwrap();
    let mut pages = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let source = entry.unwrap().path().join("src/lib.rs");
        let Ok(text) = fs::read_to_string(&source) else { continue };
        for found in include.captures_iter(&text) {
            pages.insert(source.parent().unwrap().join(&found[1]).canonicalize().unwrap());
        }
    }
    pages
}

#[test]
fn rust_blocks_are_compiled_by_a_crate() {
    let compiled = compiled();
    let mut wrong = Vec::new();
    for page in all_pages() {
        let is_compiled = compiled.contains(&root().join(Path::new(&page.path)));
        for block in &page.blocks {
            let place = format!("{}:{}", page.path, block.line);
            if block.language.starts_with("rust") && !is_compiled {
                wrong.push(format!("{place}: no src/lib.rs includes this page as a doctest"));
            }
            if block.language.contains("ignore") && !page.path.starts_with("crates/") {
                wrong.push(format!("{place}: an ignored block is not compiled"));
            }
            // rustdoc takes a block without a language for Rust.
            if block.language.is_empty() && is_compiled {
                wrong.push(format!("{place}: a block of a compiled page has no language"));
            }
        }
    }
    assert_none(&wrong);
}
