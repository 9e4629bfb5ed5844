//! Value of a field of a record: missing, null or text.

use std::borrow::Cow;

/// Value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'r> {
    /// The record has no such field.
    Missing,
    /// JSON's null.
    Null,
    Text(Cow<'r, [u8]>),
}

impl<'r> From<Option<&'r [u8]>> for FieldValue<'r> {
    fn from(text: Option<&'r [u8]>) -> Self {
        text.map_or(Self::Missing, |text| Self::Text(Cow::Borrowed(text)))
    }
}
