//! Execution of a record: the arguments of a command, or a line for a worker.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::ensure;

use crate::input::{FieldLayout, InputRecord};
use crate::template::{NoField, SLOT_MARK, Template};

use super::record_task::RecordBody;

/// How the work for each record is made.
#[derive(Debug, Clone)]
pub(super) enum RecordTemplate {
    /// Arguments of the command.
    Command(Vec<Template>),
    /// Arguments of the command of a batch, which are equal for all records of a key.
    Batch(Vec<Template>),
    /// The line to send to a worker.
    Line(Template),
}

/// Why one record cannot be run, while others can.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    NoField(#[from] NoField),
    #[error(
        "its line for the worker would contain a line end; choose fields without one with \
         --worker-line, or run it without --worker"
    )]
    LineEnd,
    #[error("it has a NUL byte, which no argument can contain; use --worker")]
    Nul,
    #[error(
        "it contains a line end, and the command of a batch gets a line for each record; run it without --batch"
    )]
    BatchLineEnd,
    #[error("its key has a NUL byte, which no argument can contain; choose another --key")]
    NulInKey,
}

impl RecordTemplate {
    /// Templates of the arguments; the record is appended if none of them uses a part of it.
    pub(super) fn command(words: &[OsString], layout: &FieldLayout) -> anyhow::Result<Self> {
        let parse = |word: &OsString| Template::parse_command(word.as_bytes(), layout);
        let mut words: Vec<_> = words.iter().map(parse).collect::<Result<_, _>>()?;
        if !words.iter().any(Template::has_placeholder) {
            words.push(Template::whole());
        }
        Ok(Self::Command(words))
    }

    /// Templates of the arguments for batches, which are lines on standard input.
    pub(super) fn batch(words: &[OsString], layout: &FieldLayout) -> anyhow::Result<Self> {
        let parse = |word: &OsString| Template::parse_command(word.as_bytes(), layout);
        let templates: Vec<_> = words.iter().map(parse).collect::<Result<_, _>>()?;
        let of_record = templates.iter().position(Template::names_record);
        ensure!(
            of_record.is_none(),
            "--batch: a command gets its records as lines on its standard input, and `{}` is for one record; leave it \
             out, or leave out --batch. {{key}} and {{%}} can stay; `-- xargs -d '\\n' COMMAND` makes arguments of the lines",
            words[of_record.unwrap_or_default()].display()
        );
        Ok(Self::Batch(templates))
    }

    /// Template of a worker's line; the whole record by default.
    pub(super) fn line(template: Option<&OsString>, layout: &FieldLayout) -> anyhow::Result<Self> {
        let template = match template {
            Some(text) => Template::parse(text.as_bytes(), layout)?,
            None => Template::whole(),
        };
        Ok(Self::Line(template))
    }

    /// Whether an argument has the number of the slot.
    pub(super) fn names_slot(&self) -> bool {
        match self {
            Self::Command(words) | Self::Batch(words) => words.iter().any(|word| word.slots() > 0),
            Self::Line(_) => false,
        }
    }

    /// Program of the command, if it is equal for all records.
    pub(super) fn program(&self) -> Option<&[u8]> {
        match self {
            Self::Command(words) | Self::Batch(words) => words.first()?.constant(),
            Self::Line(_) => None,
        }
    }

    /// Returns the arguments of the command of a batch, with marks for the number of the slot.
    pub(super) fn batch_argv(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let Self::Batch(words) = self else { unreachable!("only batches have such arguments") };
        let rendered = |word: &Template| {
            let mut text = Vec::new();
            let rendered = word.render(&InputRecord::default(), key, &mut text);
            rendered.expect("the arguments of a batch have no fields");
            text
        };
        words.iter().map(rendered).collect()
    }

    pub(super) fn body(&self, record: &InputRecord, key: &[u8]) -> Result<RecordBody, RecordError> {
        match self {
            Self::Command(words) => {
                let names_slot = self.names_slot();
                let rendered = |word: &Template| {
                    let mut text = Vec::new();
                    word.render(record, key, &mut text)?;
                    // Any other would be taken for the place of the slot's number.
                    if names_slot && memchr::memchr_iter(SLOT_MARK, &text).count() != word.slots() {
                        return Err(RecordError::Nul);
                    }
                    Ok(text)
                };
                Ok(RecordBody::Argv(words.iter().map(rendered).collect::<Result<_, _>>()?))
            }
            Self::Batch(_) => batch_line(record, key).map(RecordBody::BatchLine),
            Self::Line(template) => {
                let mut line = Vec::with_capacity(record.raw.len() + 1);
                template.render(record, key, &mut line)?;
                if memchr::memchr(b'\n', &line).is_some() {
                    return Err(RecordError::LineEnd);
                }
                line.push(b'\n');
                Ok(RecordBody::Line(line))
            }
        }
    }
}

/// Returns the line of a record in a batch.
fn batch_line(record: &InputRecord, key: &[u8]) -> Result<Vec<u8>, RecordError> {
    if memchr::memchr(b'\n', &record.raw).is_some() {
        return Err(RecordError::BatchLineEnd);
    }
    // The environment and the arguments have the key.
    if memchr::memchr(0, key).is_some() {
        return Err(RecordError::NulInKey);
    }
    Ok([&record.raw[..], b"\n"].concat())
}

/// Returns the arguments with the number of the slot in its places.
pub(super) fn with_slot(argv: &[Vec<u8>], slot: usize) -> Vec<Vec<u8>> {
    let number = slot.to_string();
    let filled = |word: &Vec<u8>| {
        let mut parts = word.split(|byte| *byte == SLOT_MARK);
        let mut text = parts.next().unwrap_or_default().to_vec();
        for part in parts {
            text.extend_from_slice(number.as_bytes());
            text.extend_from_slice(part);
        }
        text
    };
    argv.iter().map(filled).collect()
}
