//! Old names of keys in TOML files.

use std::borrow::Cow;
use std::mem;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::RenamedSetting;

/// Renamed keys of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenamedKeys {
    /// Path of the table; `*` is every table that stands there.
    pub(crate) path: &'static [&'static str],
    pub(crate) keys: &'static [RenamedSetting],
}

/// An old name in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OldKey {
    /// Number of the line, from 1 on.
    pub(crate) line: usize,
    pub(crate) name: RenamedSetting,
}

impl OldKey {
    /// Message for users about this key of this file.
    pub(crate) fn warning(&self, path: &Path) -> String {
        let (path, line) = (path.display(), self.line);
        let RenamedSetting { old, new } = self.name;
        format!("warning: {path}:{line}: `{old}` is an old name, write `{new}`")
    }
}

/// Reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigReadError {
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error("line {}: {}", .0.line, both_names(.0.name))]
    BothNames(OldKey),
}

impl ConfigReadError {
    /// Number of the line, from 1 on, and the message without it.
    pub(crate) fn at(&self, text: &str) -> (usize, String) {
        match self {
            ConfigReadError::Toml(error) => {
                let begin = error.span().map_or(0, |span| span.start);
                (line_at(text, begin), error.message().trim_end().to_owned())
            }
            ConfigReadError::BothNames(old) => (old.line, both_names(old.name)),
        }
    }
}

/// Parses a file, whose keys may have old names.
///
/// # Errors
///
/// Returns an error if the text is invalid, or if a key is set by both of its names.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    tables: &[RenamedKeys],
) -> Result<(T, Vec<OldKey>), ConfigReadError> {
    let mut root = DeTable::parse(text)?;
    let mut found = Vec::new();
    for table in tables {
        rename_at(root.get_mut(), table.path, &mut |keys| {
            rename(keys, table.keys, text, &mut found)
        })?;
    }
    found.sort_by_key(|old| old.line);
    let value = T::deserialize(Deserializer::from(root)).map_err(|mut error| {
        error.set_input(Some(text));
        error
    })?;
    Ok((value, found))
}

/// Calls `rename` for each table at the path.
fn rename_at<'t>(
    table: &mut DeTable<'t>,
    path: &[&str],
    rename: &mut dyn FnMut(&mut DeTable<'t>) -> Result<(), ConfigReadError>,
) -> Result<(), ConfigReadError> {
    let Some((first, rest)) = path.split_first() else { return rename(table) };
    let entries = mem::take(table);
    for (name, mut value) in entries {
        if let DeValue::Table(inner) = value.get_mut()
            && (*first == "*" || name.get_ref() == first)
        {
            rename_at(inner, rest, rename)?;
        }
        table.insert(name, value);
    }
    Ok(())
}

fn rename(
    table: &mut DeTable<'_>,
    renamed: &[RenamedSetting],
    text: &str,
    found: &mut Vec<OldKey>,
) -> Result<(), ConfigReadError> {
    for &name in renamed {
        let Some((key, value)) = table.remove_entry(name.old) else { continue };
        let old = OldKey { line: line_at(text, key.span().start), name };
        if table.contains_key(name.new) {
            return Err(ConfigReadError::BothNames(old));
        }
        table.insert(Spanned::new(key.span(), Cow::Borrowed(name.new)), value);
        found.push(old);
    }
    Ok(())
}

fn both_names(RenamedSetting { old, new }: RenamedSetting) -> String {
    format!("`{old}` is the old name of `{new}`, and both are set: leave out `{old}`")
}

fn line_at(text: &str, byte: usize) -> usize {
    text[..byte].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const TABLES: &[RenamedKeys] = &[
        RenamedKeys { path: &[], keys: &[RenamedSetting::new("old", "new")] },
        RenamedKeys { path: &["of", "*", "in"], keys: &[RenamedSetting::new("least", "min")] },
    ];

    type Parsed = Result<(BTreeMap<String, toml::Value>, Vec<OldKey>), ConfigReadError>;

    fn parsed(text: &str) -> Parsed {
        parse(text, TABLES)
    }

    #[test]
    fn keys_are_renamed_where_the_path_leads_and_nowhere_else() {
        let (value, found) = parsed(
            "old = 1\nleast = 2\n[of.a]\nold = 3\nin = { least = 4 }\n[of.b.in]\nleast = 5\n",
        )
        .unwrap();
        let expected =
            "new = 1\nleast = 2\n[of.a]\nold = 3\nin = { min = 4 }\n[of.b.in]\nmin = 5\n";
        assert_eq!(value, parsed(expected).unwrap().0);
        let lines: Vec<_> = found.iter().map(|old| (old.line, old.name.old)).collect();
        assert_eq!(lines, [(1, "old"), (5, "least"), (7, "least")]);
    }

    #[test]
    fn both_names_are_an_error_with_the_line() {
        let error = parsed("a = 1\nnew = 1\nold = 2\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "line 3: `old` is the old name of `new`, and both are set: leave out `old`"
        );
    }

    #[test]
    fn other_errors_keep_their_place() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its errors are of interest")]
        struct One {
            new: u8,
        }
        let of = |text| parse::<One>(text, TABLES).unwrap_err().to_string();
        assert!(of("\nold = \"x\"\n").contains("line 2"));
        assert!(of("old = 1\nother = 2\n").contains("line 2"));
        assert!(of("\n\nold 1").contains("line 3"));
    }
}
