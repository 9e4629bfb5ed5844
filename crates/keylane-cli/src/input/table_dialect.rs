//! Dialect of a table: what separates fields, and whether they can be quoted.

/// How fields are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableDialect {
    /// Commas; a field may be quoted and may then contain line ends.
    Csv,
    /// Tabs; neither tabs nor line ends can be part of a field.
    Tsv,
}

impl TableDialect {
    /// Returns the separator of fields, and whether fields can be quoted.
    pub(super) fn syntax(self) -> (u8, bool) {
        match self {
            TableDialect::Csv => (b',', true),
            TableDialect::Tsv => (b'\t', false),
        }
    }
}
