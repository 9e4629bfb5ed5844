//! Checks of `serve --check` on commands: programs that cannot be run, and braces that are not
//! placeholders.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::bail;

/// Command line, and its path in the configuration, such as `kinds.resize.split`.
#[derive(Debug)]
pub(super) struct CommandLine<'a> {
    pub(super) place: String,
    pub(super) words: &'a [String],
    /// Whether it is a worker, whose arguments have no placeholders.
    pub(super) is_worker: bool,
}

/// Placeholders of a command.
const PLACEHOLDERS: [&str; 2] = ["{}", "{key}"];

/// Checks all commands. Returns notes on arguments that may be intended.
///
/// # Errors
///
/// Returns an error if a program cannot be run now.
pub(super) fn check(all: &[CommandLine<'_>]) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    for CommandLine { place, words, is_worker } in all {
        if let Some(why) = unrunnable(words) {
            bail!("{place}: {why}");
        }
        for name in words.iter().flat_map(|word| names_in_braces(word)) {
            if *is_worker {
                notes.push(format!(
                    "{place}: a worker gets tasks on its standard input, so `{name}` stays as it is"
                ));
            } else if !PLACEHOLDERS.contains(&name) {
                notes.push(format!("{place}: `{name}` is no placeholder and stays as it is; there are {{}} and {{key}}"));
            }
        }
    }
    Ok(notes)
}

/// Returns a text for each command whose program cannot be run now.
pub(super) fn all_unrunnable(all: &[CommandLine<'_>]) -> Vec<String> {
    let texts = all.iter().filter_map(|CommandLine { place, words, .. }| {
        unrunnable(words).map(|why| format!("{place}: {why}"))
    });
    texts.collect()
}

fn unrunnable(words: &[String]) -> Option<String> {
    let program = words.first().map_or("", String::as_str);
    not_runnable(program).map(|why| format!("`{program}` cannot be run: {why}"))
}

/// Why a program cannot be run, if so. Without a slash in its name it is looked for in `PATH`.
fn not_runnable(program: &str) -> Option<String> {
    let is_runnable = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = Path::new(program);
        return match path.metadata() {
            Err(error) => Some(error.to_string()),
            Ok(_) if is_runnable(path) => None,
            Ok(_) => Some("it is no file that may be executed".to_owned()),
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let is_found = env::split_paths(&path).any(|folder| is_runnable(&folder.join(program)));
    (!is_found).then(|| "no folder in PATH has it".to_owned())
}

/// Parts of an argument such as `{name}`.
fn names_in_braces(word: &str) -> Vec<&str> {
    let begins = word.match_indices('{').map(|(at, _)| at);
    let named = begins.filter_map(|at| {
        let end = at + word[at..].find('}')?;
        let inside = &word[at + 1..end];
        let is_name = inside.chars().all(|c| c.is_ascii_alphanumeric() || "_-#.".contains(c));
        is_name.then(|| &word[at..=end])
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(words: &[&str], is_worker: bool) -> Result<Vec<String>, String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let all = [CommandLine { place: "kinds.a".into(), words: &words, is_worker }];
        check(&all).map_err(|error| error.to_string())
    }

    #[test]
    fn a_program_that_cannot_be_run_is_an_error() {
        assert_eq!(check_one(&["sh", "-c", "true"], false), Ok(vec![]));
        assert_eq!(check_one(&["/bin/sh"], true), Ok(vec![]));
        for wrong in ["no-such-program-anywhere", "./no-such-file", "/etc/passwd", "/"] {
            let error = check_one(&[wrong], false).unwrap_err();
            assert!(error.starts_with(&format!("kinds.a: `{wrong}` cannot be run")), "{error}");
        }
    }

    #[test]
    fn braces_that_are_no_placeholder_are_noted() {
        let notes = check_one(&["sh", "{} {key} {foo}", "{a: .b}", "{", "x{id}y"], false).unwrap();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("`{foo}`") && notes[1].contains("`{id}`"), "{notes:?}");
        assert!(check_one(&["sh", "{key}"], true).unwrap()[0].contains("standard input"));
    }
}
