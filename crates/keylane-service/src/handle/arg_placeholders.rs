//! Placeholders in the arguments of a command.
//!
//! `{}` is replaced by the payload and `{key}` by the first key; other braces are unchanged. A
//! submitter chooses both values. An argument that begins with a placeholder and whose value begins
//! with `-` would be an option of the program, so the attempt is refused, unless the configuration
//! has an argument `--` before it: after it, programs expect operands.

use std::ffi::OsString;

use super::{Attempt, AttemptFailure};

/// Placeholders and the source of their values.
const PLACEHOLDERS: [(&str, ValueSource); 2] =
    [("{}", ValueSource::Payload), ("{key}", ValueSource::Key)];

/// Ends the options of a program.
const END_OF_OPTIONS: &str = "--";

#[derive(Clone, Copy)]
enum ValueSource {
    Payload,
    Key,
}

impl ValueSource {
    fn of(self, attempt: &Attempt) -> String {
        match self {
            ValueSource::Payload => String::from_utf8_lossy(&attempt.payload).into_owned(),
            ValueSource::Key => attempt.key().unwrap_or_default().into_owned(),
        }
    }
}

/// Returns the arguments with the placeholders replaced.
///
/// # Errors
///
/// Returns an error if a submitted value would become an option of the program.
pub(super) fn filled(
    words: &[OsString],
    attempt: &Attempt,
) -> Result<Vec<OsString>, AttemptFailure> {
    let mut may_be_option = true;
    let fill = |word: &OsString| {
        may_be_option &= word != END_OF_OPTIONS;
        let Some(text) = word.to_str().filter(|text| text.contains('{')) else {
            return Ok(word.clone());
        };
        let value = filled_word(text, attempt);
        match first_placeholder(text) {
            Some(name) if may_be_option && value.starts_with('-') => Err(option(name, &value)),
            _ => Ok(value.into()),
        }
    };
    words.iter().map(fill).collect()
}

/// Replaces the placeholders of one argument from left to right, so that braces in a value are
/// never taken for a placeholder.
fn filled_word(word: &str, attempt: &Attempt) -> String {
    let mut filled = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let found = placeholder(rest);
        let (value, length) =
            found.map_or(("{".into(), 1), |(name, source)| (source.of(attempt), name.len()));
        filled.push_str(&value);
        rest = &rest[length..];
    }
    filled.push_str(rest);
    filled
}

/// Returns the placeholder at the start of the text.
fn placeholder(text: &str) -> Option<(&'static str, ValueSource)> {
    PLACEHOLDERS.into_iter().find(|(name, _)| text.starts_with(name))
}

fn first_placeholder(word: &str) -> Option<&'static str> {
    placeholder(word).map(|(name, _)| name)
}

fn option(name: &str, value: &str) -> AttemptFailure {
    /// Maximum number of characters of a value that a message quotes.
    const MAX_QUOTED: usize = 40;
    let quoted: String = value.chars().take(MAX_QUOTED).collect();
    let (what, other) = match name {
        "{key}" => ("the key", "the variable KEYLANE_KEY"),
        _ => ("the payload", "the standard input"),
    };
    AttemptFailure::lasting(format!(
        "the command was not run: {what} `{quoted}` begins with `-`, and the program would take it for an option; put \
         the word `--` before `{name}` in the kind's command, or have the program read {other}"
    ))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio_util::sync::CancellationToken;

    use super::super::{AttemptOutput, Step};
    use super::*;
    use crate::{JobId, Key};

    fn fill(words: &[&str], key: &str, payload: &'static str) -> Result<Vec<String>, String> {
        let attempt = Attempt {
            progress: crate::handle::AttemptProgress::default(),
            job: JobId([0; 16]),
            kind: "k".into(),
            step: Step::Subtask(0),
            keys: vec![Key::new(key), Key::new("second")],
            shared_keys: Vec::new(),
            number: 1,
            fence: 1,
            payload: Bytes::from_static(payload.as_bytes()),
            trace: None,
            log: AttemptOutput::default(),
            cancelled: CancellationToken::new(),
            children: keylane_process::Registry::default(),
        };
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let filled = filled(&words, &attempt).map_err(|failure| failure.error)?;
        Ok(filled.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn placeholders_get_values_and_other_braces_stay() {
        let words = ["printf", "a {} {key} {other} {", "}"];
        let filled = fill(&words, "ann", "[{key}]").unwrap();
        assert_eq!(filled, ["printf", "a [{key}] ann {other} {", "}"]);
    }

    #[test]
    fn a_submitted_value_does_not_become_an_option() {
        let refused = fill(&["ls", "{key}"], "--version", "1").unwrap_err();
        for part in ["the key `--version`", "`--` before `{key}`", "KEYLANE_KEY"] {
            assert!(refused.contains(part), "{refused}");
        }
        let refused = fill(&["ls", "{}"], "a", "-5").unwrap_err();
        assert!(refused.contains("the payload `-5`") && refused.contains("standard input"));
        // Also with text after the placeholder.
        fill(&["ls", "{key}.png"], "-l", "1").unwrap_err();
        // An argument with a fixed prefix is the operator's choice.
        assert_eq!(fill(&["ls", "-n={}"], "a", "-5").unwrap(), ["ls", "-n=-5"]);
        assert_eq!(fill(&["ls", "{key}"], "a-b", "1").unwrap(), ["ls", "a-b"]);
    }

    #[test]
    fn behind_the_end_of_the_options_any_value_is_an_operand() {
        let filled = fill(&["ls", "--", "{key}", "{}"], "-l", "-5").unwrap();
        assert_eq!(filled, ["ls", "--", "-l", "-5"]);
        fill(&["ls", "{key}", "--"], "-l", "1").unwrap_err();
        // A submitted value cannot end the options for later arguments.
        fill(&["ls", "{key}", "{}"], "a", "--").unwrap_err();
    }
}
