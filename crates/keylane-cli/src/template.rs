//! Placeholders `{...}` in the arguments of a command, replaced by parts of a record; an unknown
//! name is an error before a command runs.
//!
//! `{}` is the whole record, `{key}` its key, `{#}` its number; in a command, `{%}` is the number of
//! its slot; any other name is a field. `{.}`, `{/}`, `{//}` and `{/.}` are parts of the record as a path; behind the name of a
//! field they are parts of its value. `{{` and `}}` are literal braces.

use anyhow::Context;

use crate::input::{FieldLayout, FieldSelector, FieldValue, InputRecord};
use crate::path_part::PathPart;

/// Stands for the number of the slot, which is known only when the command starts. No argument of a
/// command can contain this byte.
pub(crate) const SLOT_MARK: u8 = 0;

/// A text with placeholders.
#[derive(Debug, Clone)]
pub(crate) struct Template(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq)]
enum TemplatePart {
    Literal(Vec<u8>),
    Whole,
    /// A part of the record as a path.
    PathPart(PathPart),
    Key,
    Number,
    Slot,
    Field {
        name: String,
        field: FieldSelector,
        /// The part of its value as a path; all of it if absent.
        part: Option<PathPart>,
    },
}

/// The record lacks a field that the template names.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("it has no field `{0}`; give every record the field, or write {{{{ for a literal brace")]
pub(crate) struct NoField(pub(crate) String);

impl Template {
    /// Parses `text`, finding its fields in `layout`. It cannot name the slot.
    pub(crate) fn parse(text: &[u8], layout: &FieldLayout) -> anyhow::Result<Self> {
        let template = Self::parse_command(text, layout)?;
        anyhow::ensure!(
            template.slots() == 0,
            "`{{%}}` is for the command of keylane run, and not for `{}`",
            String::from_utf8_lossy(text)
        );
        Ok(template)
    }

    /// Parses a word of a command, which can name the slot.
    pub(crate) fn parse_command(text: &[u8], layout: &FieldLayout) -> anyhow::Result<Self> {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if (byte == b'{' || byte == b'}') && rest.first() == Some(&byte) {
                literal.push(byte);
                rest = &rest[1..];
            } else if byte == b'{' {
                let (name, after) = split_name(rest).with_context(|| refusal(text))?;
                push_literal(&mut parts, &mut literal);
                parts.push(TemplatePart::named(name, layout).with_context(|| refusal(text))?);
                rest = after;
            } else {
                literal.push(byte);
            }
        }
        push_literal(&mut parts, &mut literal);
        Ok(Self(parts))
    }

    /// The template `{}`.
    pub(crate) fn whole() -> Self {
        Self(vec![TemplatePart::Whole])
    }

    /// True if some part is not equal for all commands.
    pub(crate) fn has_placeholder(&self) -> bool {
        self.0.iter().any(|part| !matches!(part, TemplatePart::Literal(_)))
    }

    /// True if some part is not equal for all records of a key.
    pub(crate) fn names_record(&self) -> bool {
        use TemplatePart::{Key, Literal, Slot};
        self.0.iter().any(|part| !matches!(part, Literal(_) | Key | Slot))
    }

    /// Number of places of the slot's number.
    pub(crate) fn slots(&self) -> usize {
        self.0.iter().filter(|part| **part == TemplatePart::Slot).count()
    }

    /// True if the value of a placeholder is the beginning of the text.
    pub(crate) fn begins_with_placeholder(&self) -> bool {
        self.0.first().is_some_and(|part| !matches!(part, TemplatePart::Literal(_)))
    }

    /// True if it asks for the key, which a key's own template cannot.
    pub(crate) fn names_key(&self) -> bool {
        self.0.contains(&TemplatePart::Key)
    }

    /// The text, if no part depends on the record.
    pub(crate) fn constant(&self) -> Option<&[u8]> {
        match self.0.as_slice() {
            [] => Some(&[]),
            [TemplatePart::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Writes the text for `record` to the end of `into`; null is empty.
    pub(crate) fn render(
        &self,
        record: &InputRecord,
        key: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), NoField> {
        for part in &self.0 {
            match part {
                TemplatePart::Literal(text) => into.extend_from_slice(text),
                TemplatePart::Whole => into.extend_from_slice(&record.raw),
                TemplatePart::PathPart(part) => into.extend_from_slice(part.of(&record.raw)),
                TemplatePart::Key => into.extend_from_slice(key),
                TemplatePart::Slot => into.push(SLOT_MARK),
                TemplatePart::Number => {
                    into.extend_from_slice(record.number.to_string().as_bytes())
                }
                TemplatePart::Field { name, field, part } => match field.of(record) {
                    FieldValue::Text(text) => into.extend_from_slice(part_of(*part, &text)),
                    FieldValue::Null => {}
                    FieldValue::Missing => return Err(NoField(name.clone())),
                },
            }
        }
        Ok(())
    }

    /// Renders the text as a key, in which a field that is missing, null, empty or `absent` is
    /// empty; false if all of its fields are.
    pub(crate) fn render_key(
        &self,
        record: &InputRecord,
        absent: impl Fn(&[u8]) -> bool,
        into: &mut Vec<u8>,
    ) -> bool {
        let mut present = false;
        for part in &self.0 {
            match part {
                TemplatePart::Literal(text) => into.extend_from_slice(text),
                TemplatePart::Whole => {
                    present |= !record.raw.is_empty();
                    into.extend_from_slice(&record.raw);
                }
                TemplatePart::PathPart(part) => {
                    present |= !record.raw.is_empty();
                    into.extend_from_slice(part.of(&record.raw));
                }
                TemplatePart::Number => {
                    present = true;
                    into.extend_from_slice(record.number.to_string().as_bytes());
                }
                TemplatePart::Field { field, part, .. } => {
                    if let FieldValue::Text(text) = field.of(record)
                        && !text.is_empty()
                        && !absent(&text)
                    {
                        present = true;
                        into.extend_from_slice(part_of(*part, &text));
                    }
                }
                TemplatePart::Key | TemplatePart::Slot => {
                    unreachable!("a key's template that names the key or the slot was refused")
                }
            }
        }
        present
    }
}

impl TemplatePart {
    fn named(name: &[u8], layout: &FieldLayout) -> anyhow::Result<Self> {
        Ok(match name {
            b"" => Self::Whole,
            b"key" => Self::Key,
            b"#" => Self::Number,
            b"%" => Self::Slot,
            _ => Self::field(name, layout)?,
        })
    }

    /// A field, or a part of its value. A column with all of the name comes first.
    fn field(text: &[u8], layout: &FieldLayout) -> anyhow::Result<Self> {
        let utf8 = |name| str::from_utf8(name).context("a field's name must be UTF-8");
        let name = utf8(text)?;
        let is_column = matches!(layout, FieldLayout::Named(_)) && layout.field(name).is_ok();
        let (name, part) = match PathPart::split(text) {
            Some((b"", part)) if !is_column => return Ok(Self::PathPart(part)),
            Some((name, part)) if !is_column => (utf8(name)?, Some(part)),
            _ => (name, None),
        };
        Ok(Self::Field { name: name.to_owned(), field: layout.field(name)?, part })
    }
}

fn part_of(part: Option<PathPart>, text: &[u8]) -> &[u8] {
    part.map_or(text, |part| part.of(text))
}

fn push_literal(parts: &mut Vec<TemplatePart>, literal: &mut Vec<u8>) {
    if !literal.is_empty() {
        parts.push(TemplatePart::Literal(std::mem::take(literal)));
    }
}

fn split_name(text: &[u8]) -> anyhow::Result<(&[u8], &[u8])> {
    let end = memchr::memchr(b'}', text).context("a { is never closed")?;
    Ok((&text[..end], &text[end + 1..]))
}

fn refusal(text: &[u8]) -> String {
    format!("cannot fill in `{}` (write {{{{ for a literal brace)", String::from_utf8_lossy(text))
}

#[cfg(test)]
#[path = "template_fuzz.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use csv::ByteRecord;

    use super::*;

    fn rendered(text: &str) -> String {
        let layout = FieldLayout::Named(ByteRecord::from(vec!["name", "n o"]));
        let record = InputRecord {
            number: 7,
            line: 8,
            raw: b"x,\"y\"".to_vec(),
            row: ByteRecord::from(vec!["x", "y"]),
        };
        let mut out = Vec::new();
        let template = Template::parse(text.as_bytes(), &layout).unwrap();
        template.render(&record, b"K", &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_placeholder_is_filled_in() {
        assert_eq!(rendered("a{}b"), "ax,\"y\"b");
        assert_eq!(rendered("{name}-{n o}-{2}"), "x-y-y");
        assert_eq!(rendered("{#}:{key}"), "7:K");
        assert_eq!(rendered("{{name}} }x {{{name}}}"), "{name} }x {x}");
    }

    #[test]
    fn parts_of_a_path_are_those_of_the_record_or_of_a_field() {
        let names = ["p", "p.", "/"];
        let layout = FieldLayout::Named(ByteRecord::from(names.to_vec()));
        let record = InputRecord {
            raw: b"a/b.txt,x.y,z".to_vec(),
            row: ByteRecord::from(vec!["a/b.txt", "x.y", "z"]),
            ..InputRecord::default()
        };
        let rendered = |text: &str, layout: &FieldLayout| {
            let mut out = Vec::new();
            Template::parse(text.as_bytes(), layout)
                .unwrap()
                .render(&record, b"", &mut out)
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(rendered("{p/} {p//} {p/.} {1.}", &layout), "b.txt a b a/b");
        assert_eq!(rendered("{//} {.}", &layout), "a a/b.txt,x");
        // Columns that are called so.
        assert_eq!(rendered("{p.} {/} {p..}", &layout), "x.y z x");
        assert_eq!(rendered("{1/} {.}", &FieldLayout::Lines), "b.txt,x.y,z a/b.txt,x");
    }

    #[test]
    fn a_placeholder_that_names_nothing_is_refused_with_the_names_there_are() {
        let layout = FieldLayout::Named(ByteRecord::from(vec!["a", "b"]));
        let message =
            |text: &str| format!("{:#}", Template::parse(text.as_bytes(), &layout).unwrap_err());
        assert!(message("{c}").contains("there is no column `c`; the columns are a, b"));
        assert!(message("{c/.}").contains("there is no column `c`; the columns are a, b"));
        assert!(message("{print $1}").contains("write {{ for a literal brace"));
        assert!(message("{a").contains("a { is never closed"));
    }

    #[test]
    fn a_missing_field_is_named_and_null_is_empty() {
        let template = Template::parse(b"<{a}>{b}", &FieldLayout::Ndjson).unwrap();
        let mut record =
            InputRecord { raw: br#"{"a":null,"b":1}"#.to_vec(), ..InputRecord::default() };
        let mut out = Vec::new();
        template.render(&record, b"", &mut out).unwrap();
        assert_eq!(out, b"<>1");
        record.raw = b"{}".to_vec();
        assert_eq!(template.render(&record, b"", &mut out), Err(NoField("a".into())));
    }
}
