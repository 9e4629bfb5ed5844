//! Links: every relative link names a file, and every anchor a heading.

use std::path::{Component, Path, PathBuf};

use regex::Regex;

use super::page::Page;
use super::{all_pages, assert_none, book_pages, read, root};

/// Targets of the links and pictures of a page, with their lines; those to other hosts left out.
fn links(page: &Page) -> Vec<(usize, String)> {
    let link = Regex::new(
        r#"\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)|(?:src|srcset|href)="([^"]+)"|^\[[^\]]+\]: (\S+)"#,
    )
    .unwrap();
    let mut found = Vec::new();
    for (line, text) in page.words() {
        for link in link.captures_iter(&text) {
            let target = link.iter().skip(1).flatten().next().unwrap().as_str();
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push((line, target.to_owned()));
            }
        }
    }
    found
}

/// A link's path from the root of the repository, and its anchor.
fn resolve(page: &Page, link: &str) -> (PathBuf, Option<String>) {
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (link, None),
    };
    if path.is_empty() {
        return (page.path.clone().into(), anchor);
    }
    let mut whole = PathBuf::new();
    for part in Path::new(&page.path).parent().unwrap().join(path).components() {
        match part {
            Component::ParentDir => {
                assert!(whole.pop(), "{}: {link} leaves the repository", page.path)
            }
            part => whole.push(part),
        }
    }
    (whole, anchor)
}

#[test]
fn every_link_resolves() {
    let mut wrong = Vec::new();
    for page in all_pages() {
        for (line, link) in links(&page) {
            let (path, anchor) = resolve(&page, &link);
            let is_there = root().join(&path).exists();
            let is_anchor = |anchor: String| {
                path.extension().is_none_or(|extension| extension != "md")
                    || read(path.to_str().unwrap()).anchors().contains(&anchor)
            };
            if !is_there || !anchor.is_none_or(is_anchor) {
                wrong.push(format!("{}:{line}: {link} is not there", page.path));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn no_link_leaves_the_book() {
    let mut wrong = Vec::new();
    for page in book_pages() {
        for (line, link) in links(&page) {
            if !resolve(&page, &link).0.starts_with("docs") {
                wrong.push(format!("{}:{line}: {link} is outside of the book", page.path));
            }
        }
    }
    assert_none(&wrong);
}
