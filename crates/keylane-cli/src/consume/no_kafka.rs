//! Replacement for Kafka in builds without the feature `kafka`: every use returns an error that
//! names the feature.

use anyhow::anyhow;
use keylane_stream::Record;
use keylane_stream::dead_letters::DeadLetters;
use keylane_stream::sink::Sink;
use keylane_stream::source::Source;

use super::status::PartitionLag;
use super::validated::KafkaMember;
use crate::features::command_with;

/// The error of every use.
fn missing() -> anyhow::Error {
    anyhow!("this keylane was built without Kafka; build it with it: `{}`", command_with("kafka"))
}

/// Note for the help.
pub(super) fn note() -> String {
    let command = command_with("kafka");
    format!(
        "This build has no Kafka: a place kafka://HOST:PORT/TOPIC is an error. For a build with it: `{command}`"
    )
}

pub(super) fn source(_: &KafkaMember) -> anyhow::Result<Box<dyn Source>> {
    Err(missing())
}

pub(super) fn check(_: &KafkaMember) -> anyhow::Result<()> {
    Err(missing())
}

pub(super) fn check_output(_: &str, _: &[String]) -> anyhow::Result<()> {
    Err(missing())
}

pub(super) fn exactly_once(
    _: &KafkaMember,
    _: &str,
) -> anyhow::Result<(Box<dyn Source>, Box<dyn Sink>)> {
    Err(missing())
}

pub(super) fn dead_letters(_: &str, _: &[String]) -> anyhow::Result<Box<dyn DeadLetters>> {
    Err(missing())
}

pub(super) fn output(_: &str, _: &[String]) -> anyhow::Result<Box<dyn Sink>> {
    Err(missing())
}

pub(super) fn lags(_: &str, _: &[String], _: &str) -> anyhow::Result<Vec<PartitionLag>> {
    Err(missing())
}

/// Never constructed.
pub(super) struct PendingSends {
    pub(super) written: u64,
}

impl PendingSends {
    pub(super) fn new(_: &str, _: &[String]) -> anyhow::Result<Self> {
        Err(missing())
    }

    pub(super) fn append(&mut self, _: &Record) -> anyhow::Result<()> {
        Err(missing())
    }

    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        Err(missing())
    }
}
