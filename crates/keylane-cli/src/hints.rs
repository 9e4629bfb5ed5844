//! Tips for command lines that are refused: those of the parser can mislead, `--` before a command is easily
//! forgotten, and options of other tools have other names here.

mod option_table;
mod other_tools;

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

pub(crate) use other_tools::refuse_separators;

/// Subcommands with a command of the user after `--`, and an example of each.
const WITH_COMMAND: [(&str, &str); 3] = [
    ("run", "keylane run --key 1 -- echo"),
    ("consume", "keylane consume - --order none -- echo"),
    ("calibrate", "keylane calibrate -- gzip -9 file"),
];

/// Replaces tips that mislead, and adds one where `--` is missing. `words` is the command line.
pub(crate) fn improve(refusal: &mut clap::Error, words: &[OsString]) {
    let mut tips = match refusal.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => Vec::new(),
    };
    // It would make an unknown option a part of the user's command.
    tips.retain(|tip| !tip.to_string().starts_with("to pass "));
    if let Some(tip) = option_of_other_tool(refusal, words) {
        // A name that is merely similar would mislead; the usage contains it, too.
        if refusal.remove(ContextKind::SuggestedArg).is_some() {
            refusal.remove(ContextKind::Usage);
        }
        tips = vec![tip.into()];
    }
    tips.extend(missing_dashes(refusal, words).map(StyledStr::from));
    tips.extend(missing_subcommand(refusal, words).map(StyledStr::from));
    tips.extend(missing_key(refusal, words).map(StyledStr::from));
    if !tips.is_empty() {
        refusal.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// The tip for an option of GNU parallel or xargs.
fn option_of_other_tool(refusal: &clap::Error, words: &[OsString]) -> Option<String> {
    match (refusal.kind(), refusal.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(option)))
            if words.get(1).is_some_and(|word| word == "run") =>
        {
            other_tools::tip(option, words)
        }
        _ => None,
    }
}

/// The tip for a command line that begins as one of GNU parallel or xargs: with an option or the user's command.
fn missing_subcommand(refusal: &clap::Error, words: &[OsString]) -> Option<String> {
    let is_missing = match refusal.kind() {
        ErrorKind::UnknownArgument => words.get(1)?.as_encoded_bytes().starts_with(b"-"),
        // Parser errors have a similar subcommand, if there is one.
        ErrorKind::InvalidSubcommand => refusal.get(ContextKind::SuggestedSubcommand).is_none(),
        _ => false,
    };
    is_missing.then(|| {
        "to run a command for each record, write 'keylane run --key 1 FILE -- COMMAND'".to_owned()
    })
}

/// The tip for a command without `--` before it.
fn missing_dashes(refusal: &clap::Error, words: &[OsString]) -> Option<String> {
    let (_, example) =
        WITH_COMMAND.iter().find(|(name, _)| words.get(1).is_some_and(|w| w == name))?;
    let is_command = match (refusal.kind(), refusal.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) => !word.starts_with('-'),
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) => {
            missing.iter().any(|name| name.contains("COMMAND"))
        }
        _ => false,
    };
    (is_command && !words.iter().any(|word| word == "--"))
        .then(|| format!("write -- before the command, as in '{example}'"))
}

/// The tip for a run without a key, by the format of its input.
fn missing_key(refusal: &clap::Error, words: &[OsString]) -> Option<String> {
    let (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) =
        (refusal.kind(), refusal.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    if words.get(1)? != "run" || !missing.iter().any(|name| name.starts_with("--key ")) {
        return None;
    }
    let own: Vec<_> = words[2..].iter().map_while(|word| word.to_str()).collect();
    let own = own.split(|word| *word == "--").next().unwrap_or_default();
    let is_of = |option: &str, names: &[&str]| {
        let has_name = |word: &str| {
            let word =
                [".gz", ".zst"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            !word.starts_with('-') && names.iter().any(|name| word.ends_with(name))
        };
        own.iter().any(|word| *word == option || has_name(word))
    };
    let without_given = |options: &str| {
        let needed = options.split(' ').filter(|option| !own.contains(option));
        needed.collect::<Vec<_>>().join(" ")
    };
    let (options, kept) = if is_of("--csv", &[".csv"]) {
        ("--csv --header --key COLUMN", "rows with the same value in a column")
    } else if is_of("--tsv", &[".tsv"]) {
        ("--tsv --header --key COLUMN", "rows with the same value in a column")
    } else if is_of("--ndjson", &[".ndjson", ".jsonl"]) {
        ("--ndjson --key .FIELD", "records with the same value in a field")
    } else {
        ("--key 1", "lines with the same first word")
    };
    Some(format!("to keep {kept} in order, add '{}'", without_given(options)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn refused(text: &str) -> String {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let mut refusal = Cli::try_parse_from(&words).unwrap_err();
        improve(&mut refusal, &words);
        refusal.to_string()
    }

    #[test]
    fn an_unknown_option_is_no_part_of_the_command() {
        for text in ["k run --remember --key 1 -- echo", "k run -Q --key 1 -- echo"] {
            let refused = refused(text);
            assert!(
                refused.contains("unexpected argument") && !refused.contains("to pass"),
                "{refused}"
            );
        }
        assert!(refused("k run --ke 1 -- echo").contains("a similar argument exists: '--key'"));
    }

    #[test]
    fn a_missing_subcommand_is_named() {
        let tip = "write 'keylane run --key 1 FILE -- COMMAND'";
        for text in ["k -j4 echo {}", "k ./handle {}", "k --retries 3 echo"] {
            assert!(refused(text).contains(tip), "{text}: {}", refused(text));
        }
        for text in ["k run --wrong", "k rum --key 1 -- echo"] {
            assert!(!refused(text).contains(tip), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn a_missing_key_has_an_example_for_the_input() {
        let rows = "to keep rows with the same value in a column in order, add";
        for (text, tip) in [
            ("k run -- echo", "lines with the same first word in order, add '--key 1'".to_owned()),
            ("k run orders.csv -- echo", format!("{rows} '--csv --header --key COLUMN'")),
            ("k run --header --csv orders -- echo", format!("{rows} '--key COLUMN'")),
            ("k run --csv orders.txt -- echo", format!("{rows} '--header --key COLUMN'")),
            ("k run a.tsv.gz -- cat b.csv", format!("{rows} '--tsv --header --key COLUMN'")),
            ("k run a.jsonl -- echo", "add '--ndjson --key .FIELD'".to_owned()),
        ] {
            assert!(refused(text).contains(&tip), "{text}: {}", refused(text));
        }
        for text in ["k run --key 1", "k run --wrong a.csv -- echo"] {
            assert!(!refused(text).contains("in order, add"), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn dashes_are_missed_where_there_are_none() {
        let tip = "write -- before the command, as in 'keylane run --key 1 -- echo'";
        for text in ["k run --key 1 file echo {}", "k run --key 1 echo", "k run --key 1 ::: a b"] {
            assert!(refused(text).contains(tip), "{text}: {}", refused(text));
        }
        for text in ["k run --remember --key 1", "k run -- echo"] {
            assert!(!refused(text).contains("write --"), "{text}: {}", refused(text));
        }
    }
}
