//! A Markdown page as the checks need it: its prose, its code blocks and its headings.

use std::collections::BTreeMap;

use regex::Regex;

pub(crate) struct Page {
    /// Path from the root of the repository.
    pub(crate) path: String,
    pub(crate) blocks: Vec<Block>,
    /// Lines outside of code blocks, with their numbers.
    pub(crate) prose: Vec<(usize, String)>,
}

/// A fenced code block.
pub(crate) struct Block {
    /// Line of its opening fence.
    pub(crate) line: usize,
    /// Words after the fence, such as `rust` or `sh`.
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let mut page = Self { path: path.to_owned(), blocks: Vec::new(), prose: Vec::new() };
        let mut open: Option<Block> = None;
        for (line, content) in (1..).zip(text.lines()) {
            let fence = content.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (Some(block), None) => block.text.extend([content, "\n"]),
                (Some(_), Some(_)) => page.blocks.extend(open.take()),
                (None, Some(language)) => {
                    let language = language.trim().to_owned();
                    open = Some(Block { line, language, text: String::new() });
                }
                (None, None) => page.prose.push((line, content.to_owned())),
            }
        }
        assert!(open.is_none(), "{path}: a code block is not closed");
        page
    }

    /// Code spans of the prose, with their lines.
    pub(crate) fn code_spans(&self) -> impl Iterator<Item = (usize, &str)> {
        let spans = |(line, text): &'_ (usize, String)| -> Vec<(usize, usize, usize)> {
            let span = Regex::new("`([^`]+)`").unwrap();
            let found = span.captures_iter(text).map(|found| found.get(1).unwrap());
            found.map(|found| (*line, found.start(), found.end())).collect()
        };
        self.prose.iter().flat_map(move |row| {
            spans(row).into_iter().map(|(line, start, end)| (line, &row.1[start..end]))
        })
    }

    /// Prose lines without their code spans.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, String)> {
        let span = Regex::new("`[^`]*`").unwrap();
        self.prose
            .iter()
            .map(move |(line, text)| (*line, span.replace_all(text, "``").into_owned()))
    }

    /// Anchors of the headings, as GitHub and mdBook make them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let mut seen = BTreeMap::<String, usize>::new();
        let headings = self.prose.iter().filter_map(|(_, line)| {
            let text = line.trim_start_matches('#');
            (text.len() < line.len() && text.starts_with(' ')).then_some(text.trim())
        });
        let anchors = headings.map(|heading| {
            let anchor = anchor(heading);
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        });
        anchors.collect()
    }
}

fn anchor(heading: &str) -> String {
    // Of a link only its text is in the anchor.
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let text = link.replace_all(heading, "$1").to_lowercase();
    let kept = text.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
