//! Reference to a field of a record, resolved once against the input's layout so that each use is
//! cheap.

use super::json_values::JsonPath;
use super::record::InputRecord;
use super::value::FieldValue;

/// Where in a record a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldSelector {
    /// A column of a table, from zero.
    Column(usize),
    /// A run of bytes between blanks of a line, from zero.
    Word(usize),
    /// A value inside a JSON text.
    Path(JsonPath),
}

impl FieldSelector {
    pub(crate) fn of<'r>(&self, record: &'r InputRecord) -> FieldValue<'r> {
        match self {
            Self::Column(index) => record.row.get(*index).into(),
            Self::Word(index) => words(&record.raw).nth(*index).into(),
            Self::Path(path) => path.find(&record.raw),
        }
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn words_are_what_blanks_separate() {
        let record = InputRecord { raw: b"  GET \t /a  200".to_vec(), ..InputRecord::default() };
        let word = |index| FieldSelector::Word(index).of(&record);
        assert_eq!(word(1), FieldValue::Text(Cow::Borrowed(b"/a")));
        assert_eq!(word(3), FieldValue::Missing);
    }
}
