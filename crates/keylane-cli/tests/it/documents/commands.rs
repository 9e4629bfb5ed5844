//! Command lines in the documents: the command has their options, and the reference pages name all of these.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;

use super::page::Page;
use super::{all_pages, assert_none, read};

/// An option in a help, short and long.
static OPTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^ +(?:(-[A-Za-z]), )?(--[a-z-]+)").unwrap());

/// A word of a shell script, or what separates commands.
static WORD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"'[^']*'|"[^"]*"|\$\(|[|;&()<>\n]+|#[^\n]*|[^\s|;&()<>'"]+"#).unwrap()
});

/// The help of each subcommand, asked for once.
#[derive(Default)]
pub(crate) struct Helps(BTreeMap<Vec<String>, String>);

impl Helps {
    fn of(&mut self, words: &[String]) -> &str {
        self.0.entry(words.to_vec()).or_insert_with(|| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_keylane"));
            let output = command.args(words).arg("--help").output().unwrap();
            assert!(output.status.success(), "keylane {words:?} --help: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        })
    }

    /// Options of a subcommand, short and long.
    pub(crate) fn options(&mut self, words: &[String]) -> BTreeSet<String> {
        let mut options = BTreeSet::new();
        for found in OPTION.captures_iter(self.of(words)) {
            options.extend(found.iter().skip(1).flatten().map(|name| name.as_str().to_owned()));
        }
        options
    }

    pub(crate) fn subcommands(&mut self, words: &[String]) -> BTreeSet<String> {
        let help = self.of(words);
        let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
        let lines = listed.lines().take_while(|line| line.starts_with("  "));
        lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
    }

    /// Reasons why the command would refuse these words.
    fn refuses(&mut self, words: &[String]) -> Vec<String> {
        let mut subcommand = Vec::new();
        for word in words {
            if !self.subcommands(&subcommand).contains(word) {
                break;
            }
            subcommand.push(word.clone());
        }
        // A call of `keylane` alone, or a text about it.
        if subcommand.is_empty() {
            return Vec::new();
        }
        let options = self.options(&subcommand);
        let own = words.iter().take_while(|&word| word != "--");
        let named = own.filter_map(|word| option(word)).filter(|option| !options.contains(option));
        named.map(|option| format!("keylane {} has no {option}", subcommand.join(" "))).collect()
    }
}

/// The name of an option, without its value: `--name=VALUE`, `-j4`.
fn option(word: &str) -> Option<String> {
    if word.starts_with("--") {
        return word.split('=').next().map(str::to_owned);
    }
    let mut chars = word.strip_prefix('-')?.chars();
    chars.next().filter(char::is_ascii_alphabetic).map(|letter| format!("-{letter}"))
}

/// The words of each call of `keylane` in a script.
fn calls(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ");
    let mut calls = Vec::<Vec<String>>::new();
    let mut is_open = false;
    for found in WORD.find_iter(&script).map(|found| found.as_str()) {
        let ends =
            found.starts_with(['|', ';', '&', '(', ')', '<', '>', '\n', '#']) || found == "$(";
        if ends {
            is_open = false;
        } else if found == "keylane" || found.ends_with("/keylane") {
            calls.push(Vec::new());
            is_open = true;
        } else if is_open {
            calls
                .last_mut()
                .unwrap()
                .push(found.trim_matches(['\'', '"', '[', ']', '…']).to_owned());
        }
    }
    calls
}

#[test]
fn command_lines_have_options_that_exist() {
    let mut helps = Helps::default();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in all_pages() {
        let blocks =
            page.blocks.iter().filter(|block| matches!(&*block.language, "sh" | "bash" | "text"));
        let blocks = blocks.map(|block| (block.line, &*block.text));
        let spans = page.code_spans().filter(|(_, span)| span.starts_with("keylane "));
        for (line, script) in blocks.chain(spans) {
            for call in calls(script) {
                count += 1;
                let refused = helps.refuses(&call);
                wrong.extend(refused.into_iter().map(|why| format!("{}:{line}: {why}", page.path)));
            }
        }
    }
    assert_none(&wrong);
    assert!(count > 100, "only {count} command lines were found");
}

#[test]
fn reference_pages_name_every_option() {
    let mut helps = Helps::default();
    let mut wrong = Vec::new();
    for subcommand in ["run", "consume", "calibrate", "simulate"] {
        let page = read(&format!("docs/{subcommand}.md"));
        let text = whole(&page);
        for option in helps.options(&[subcommand.to_owned()]) {
            let named = Regex::new(&format!(r"(?m)[^a-z-]{option}(?:[^a-z-]|$)")).unwrap();
            if option.starts_with("--") && option != "--help" && !named.is_match(&text) {
                wrong.push(format!("{}: {option} is not there", page.path));
            }
        }
    }
    assert_none(&wrong);
}

fn whole(page: &Page) -> String {
    let prose = page.prose.iter().map(|(_, line)| &**line);
    let blocks = page.blocks.iter().map(|block| &*block.text);
    prose.chain(blocks).collect::<Vec<_>>().join("\n")
}
