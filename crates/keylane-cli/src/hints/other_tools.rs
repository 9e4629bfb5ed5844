//! Tips for users of GNU parallel and xargs: each option and separator of them that `keylane run` does not have gets
//! its spelling here, or a way around.

use std::ffi::OsString;

use anyhow::bail;

use super::option_table::{OptionRemedy, TABLE};

/// Separators between a command and its arguments.
const SEPARATORS: [&str; 4] = [":::", ":::+", "::::", "::::+"];

/// Returns the tip for an option of another tool. `words` is the command line.
pub(super) fn tip(option: &str, words: &[OsString]) -> Option<String> {
    if matches!(option, "--halt" | "--halt-on-error" | "--haltonerror") {
        return Some(halt(option, value(option, words)));
    }
    let mut table = TABLE.iter().copied().flatten();
    let (_, remedy) = table.find(|(names, _)| names.contains(&option))?;
    Some(match remedy {
        OptionRemedy::Write(words, "") => format!("in place of '{option}' write '{words}'"),
        OptionRemedy::Write(words, remark) => {
            format!("in place of '{option}' write '{words}': {remark}")
        }
        OptionRemedy::LeaveOut(reason) => format!("leave out '{option}': {reason}"),
        OptionRemedy::Missing(instead) => format!("there is no '{option}': {instead}"),
    })
}

/// The tip for `--halt`, by its value: `now,fail=1` and others.
fn halt(option: &str, value: Option<&str>) -> String {
    let condition = match value {
        Some("0" | "never") => {
            return format!("leave out '{option}': a failure does not stop the run");
        }
        None | Some("1" | "2") => "fail=1",
        Some(value) => value.split_once(',').map_or(value, |(_when, condition)| condition),
    };
    let stop = "no record starts after it, and running commands may finish; '--on-fail stop-key' stops only the key";
    if condition == "fail=1" {
        format!("in place of '{option}' write '--on-fail stop', for the first failure: {stop}")
    } else if condition.starts_with("fail=") {
        format!(
            "nearest to '{option}' is '--on-fail stop', but it is for the first failure: {stop}"
        )
    } else {
        format!(
            "there is no '{option}' for '{condition}': only failures stop a run, with '--on-fail stop'"
        )
    }
}

/// Returns the value of an option, which is attached to it or the next word.
fn value<'w>(option: &str, words: &'w [OsString]) -> Option<&'w str> {
    let own = words.iter().map_while(|word| word.to_str().filter(|word| *word != "--"));
    let mut own = own.skip_while(|word| {
        word.strip_prefix(option).is_none_or(|rest| !rest.is_empty() && !rest.starts_with('='))
    });
    match own.next()?.split_once('=') {
        Some((_, value)) => Some(value),
        None => own.next().filter(|word| !word.starts_with('-')),
    }
}

/// Refuses words that GNU parallel knows and `keylane run` would take for a file's name or a part of the command.
///
/// # Errors
/// If there is one, with the remedy.
pub(crate) fn refuse_separators(words: &[OsString]) -> anyhow::Result<()> {
    if words.get(1).is_none_or(|word| word != "run") {
        return Ok(());
    }
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    if words[..end].windows(2).any(|pair| pair[0] == "--header" && pair[1] == ":") {
        bail!(
            "--header has no value: leave out the `:`; names of columns come from the first line of --csv or --tsv"
        );
    }
    let is_separator = |word: &OsString| SEPARATORS.iter().any(|separator| word == separator);
    let Some(at) = words.iter().position(is_separator) else { return Ok(()) };
    let dashes = if end == words.len() { ", and -- stands before the command" } else { "" };
    let separator = words[at].display();
    let remedy = match words[at].to_str() {
        Some("::::" | "::::+") => {
            "name the file before --, as in `keylane run --key 1 FILE -- COMMAND`"
        }
        _ => "write them a line each, as in `printf '%s\\n' a b | keylane run --key 1 -- COMMAND`",
    };
    bail!(
        "`{separator}` has no meaning here, for records come from files or a pipe: {remedy}{dashes}. If it is meant for the \
         command, use `sh -c`"
    )
}

#[cfg(test)]
#[path = "other_tools_tests.rs"]
mod tests;
