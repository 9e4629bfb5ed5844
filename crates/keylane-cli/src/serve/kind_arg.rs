//! Kinds on the command line: `--kind NAME=COMMAND`.

use std::str::FromStr;

/// A kind whose subtasks run a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KindArg {
    pub(super) name: String,
    /// Program and arguments.
    pub(super) command: Vec<String>,
}

impl KindArg {
    /// The kind of a server that has no other: prints the payload of its subtask.
    pub(super) fn example() -> Self {
        KindArg { name: "hello".to_owned(), command: vec!["cat".to_owned()] }
    }
}

impl FromStr for KindArg {
    type Err = String;

    /// Splits the command into words by the quoting rules of a shell. No shell runs it.
    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write NAME=COMMAND, such as hello='cat' or resize='./resize --fast'";
        let (name, command) =
            text.split_once('=').ok_or_else(|| format!("there is no `=`; {example}"))?;
        if name.is_empty() {
            return Err(format!("there is no name before the `=`; {example}"));
        }
        let command = shlex::split(command).ok_or("a quote in the command is not closed")?;
        if command.first().is_none_or(String::is_empty) {
            return Err(format!("there is no program behind the `=`; {example}"));
        }
        Ok(KindArg { name: name.to_owned(), command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_splits_it() {
        let kind: KindArg = "a=sh -c 'x=1; echo \"$x\"' {key} \"b c\" d\\ e".parse().unwrap();
        let command = ["sh", "-c", "x=1; echo \"$x\"", "{key}", "b c", "d e"];
        assert_eq!(kind, KindArg { name: "a".into(), command: command.map(String::from).into() });
    }

    #[test]
    fn a_kind_without_a_name_or_a_program_is_refused_with_an_example() {
        for text in ["cat", "=cat", "a=", "a=  ", "a=''"] {
            let refused = text.parse::<KindArg>().unwrap_err();
            assert!(refused.contains("hello='cat'"), "{text}: {refused}");
        }
        assert!("a=sh -c 'x".parse::<KindArg>().unwrap_err().contains("quote"));
    }
}
