//! Old names of options on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::bail;

use super::{CONSUME, RenamedSetting};

/// A value that means "no key".
const NULL: &[RenamedSetting] = &[RenamedSetting::new("null", "null-value")];

/// Renamed options of each subcommand, without their dashes.
const OPTIONS: &[(&str, &[RenamedSetting])] = &[
    ("calibrate", &[RenamedSetting::new("max", "max-workers")]),
    ("simulate", &[RenamedSetting::new("patience", "max-hold")]),
    ("consume", CONSUME),
    ("produce", NULL),
    ("serve", &[RenamedSetting::new("stop-within", "shutdown-timeout")]),
    ("submit", NULL),
    ("watch", &[RenamedSetting::new("patience", "reconnect-timeout")]),
    ("top", &[RenamedSetting::new("every", "interval")]),
    ("audit", &[RenamedSetting::new("who", "actor"), RenamedSetting::new("what", "action")]),
];

/// Replaces old names of options by the new ones. Returns the words, and a warning for each old name.
///
/// An option's value cannot be mistaken for an option: a separate value never begins with `--`.
///
/// # Errors
///
/// Returns an error if an option is given by both of its names, or an old one has another meaning now.
pub(crate) fn with_new_names(words: Vec<OsString>) -> anyhow::Result<(Vec<OsString>, Vec<String>)> {
    let subcommand = words.get(1).cloned().unwrap_or_default();
    if subcommand == "run" {
        refuse_null_with_value(&words)?;
    }
    let Some((_, renamed)) = OPTIONS.iter().find(|(name, _)| subcommand == *name) else {
        return Ok((words, Vec::new()));
    };
    replace(words, renamed)
}

/// Refuses `--null=VALUE` of `keylane run`, where the option has a new meaning without a value.
fn refuse_null_with_value(words: &[OsString]) -> anyhow::Result<()> {
    let own = words.iter().take_while(|word| *word != "--");
    let mut values = own.filter_map(|word| after_option(word, "null")?.strip_prefix(b"="));
    let Some(value) = values.next() else { return Ok(()) };
    bail!(
        "`--null` has no value: it means records that end with a NUL byte, as with `find -print0`; for a value that \
         means \"no key\" write `--null-value {}`",
        OsStr::from_bytes(value).display()
    )
}

fn replace(
    mut words: Vec<OsString>,
    renamed: &[RenamedSetting],
) -> anyhow::Result<(Vec<OsString>, Vec<String>)> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let own = &mut words[..end];
    let mut warnings = Vec::new();
    for RenamedSetting { old, new } in renamed {
        if !own.iter().any(|word| after_option(word, old).is_some()) {
            continue;
        }
        if own.iter().any(|word| after_option(word, new).is_some()) {
            bail!(
                "`--{old}` is the old name of `--{new}`, and both are given: leave out `--{old}`"
            );
        }
        for word in own.iter_mut() {
            if let Some(rest) = after_option(word, old) {
                *word = OsString::from_vec([b"--", new.as_bytes(), rest].concat());
            }
        }
        warnings.push(format!("warning: `--{old}` is an old name, write `--{new}`"));
    }
    Ok((words, warnings))
}

/// `=VALUE`, or nothing, after the option's name, if the word is this option.
fn after_option<'a>(word: &'a OsStr, name: &str) -> Option<&'a [u8]> {
    let rest = word.as_bytes().strip_prefix(b"--")?.strip_prefix(name.as_bytes())?;
    matches!(rest.first(), None | Some(b'=')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    /// A value of the option, and what else its subcommand needs.
    fn example(subcommand: &str, new: &str) -> (&'static str, &'static str) {
        let value = match new {
            "null-value" | "group-instance-id" | "actor" | "action" => "NA",
            "max-in-flight" | "max-in-flight-bytes" | "commit-batch-size" | "max-workers" => "7",
            "max-hold" => "1:30",
            _ => "5s",
        };
        let rest = match subcommand {
            "produce" => " journal:a",
            "simulate" => " --random 3",
            "serve" => " --config a.toml",
            "submit" => " resize",
            "watch" => " job-1",
            _ => "",
        };
        (value, rest)
    }

    /// The renamed options of the subcommands that this build has.
    fn all() -> Vec<(&'static str, RenamedSetting)> {
        let command = Cli::command();
        let there = OPTIONS.iter().filter(|(name, _)| command.find_subcommand(name).is_some());
        there.flat_map(|(name, renamed)| renamed.iter().map(|one| (*name, *one))).collect()
    }

    #[test]
    fn each_old_option_means_the_new_one_and_gives_a_warning() {
        assert!(all().len() >= 2);
        for (subcommand, RenamedSetting { old, new }) in all() {
            let (value, rest) = example(subcommand, new);
            for between in [" ", "="] {
                let call = |name| words(&format!("k {subcommand} --{name}{between}{value}{rest}"));
                let expected = format!("{:?}", Cli::try_parse_from(call(new)).unwrap());
                Cli::try_parse_from(call(old)).expect_err("the old name is not there any more");
                let (replaced, warnings) = with_new_names(call(old)).unwrap();
                assert_eq!(format!("{:?}", Cli::try_parse_from(replaced).unwrap()), expected);
                let named = [format!("`--{old}`"), format!("`--{new}`")];
                assert_eq!(warnings.len(), 1);
                assert!(named.iter().all(|name| warnings[0].contains(name)), "{warnings:?}");
                assert_eq!(with_new_names(call(new)).unwrap(), (call(new), Vec::new()));
            }
        }
    }

    #[test]
    fn both_names_of_an_option_are_an_error_that_has_both() {
        for (subcommand, RenamedSetting { old, new }) in all() {
            let (value, rest) = example(subcommand, new);
            for (first, second) in [(old, new), (new, old)] {
                let both = format!("k {subcommand} --{first} {value} --{second}={value}{rest}");
                let error = with_new_names(words(&both)).unwrap_err().to_string();
                assert!(error.contains(&format!("`--{old}`")), "{error}");
                assert!(error.contains(&format!("`--{new}`")), "{error}");
            }
        }
    }

    #[test]
    fn words_of_the_command_and_other_options_stay() {
        for same in [
            "k run --key 1 -- x --null a --null=b",
            "k run --null --key 1 -- x",
            "k produce -- x --null a",
            "k run --nullable --key 1",
            "k status --patience 1s",
            "k",
        ] {
            assert_eq!(with_new_names(words(same)).unwrap(), (words(same), Vec::new()));
        }
    }

    #[test]
    fn a_value_of_the_former_null_option_is_an_error_with_the_remedy() {
        let error = with_new_names(words("k run --key 1 --null=NA -- x")).unwrap_err().to_string();
        assert!(error.contains("write `--null-value NA`"), "{error}");
    }

    #[test]
    fn a_repeated_option_gives_one_warning_and_keeps_all_bytes() {
        let not_text = OsString::from_vec(b"--null=\xff".to_vec());
        let mut all = words("k produce --null a");
        all.push(not_text);
        let (replaced, warnings) = with_new_names(all).unwrap();
        assert_eq!(warnings.len(), 1);
        assert_eq!(replaced[2], "--null-value");
        assert_eq!(replaced[4].as_bytes(), b"--null-value=\xff");
    }
}
