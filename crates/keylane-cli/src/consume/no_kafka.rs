//! Replacement for Kafka in builds without the feature `kafka`: every use returns an error that
//! names the feature.

use anyhow::bail;
use keylane_stream::Record;
use keylane_stream::dead_letters::DeadLetters;
use keylane_stream::sink::Sink;
use keylane_stream::source::Source;

use super::status::PartitionLag;
use super::validated::KafkaMember;

const WITHOUT: &str = "this keylane was built without Kafka; build it with it: \
     `cargo build --release -p keylane-cli --features kafka`";

/// Note for the help.
pub(super) const IN_THIS_BUILD: &str = "This build has no Kafka: a place kafka://HOST:PORT/TOPIC \
     is an error. For a build with it: `cargo build --release -p keylane-cli --features kafka`";

pub(super) fn source(_: &KafkaMember) -> anyhow::Result<Box<dyn Source>> {
    bail!(WITHOUT)
}

pub(super) fn check(_: &KafkaMember) -> anyhow::Result<()> {
    bail!(WITHOUT)
}

pub(super) fn check_output(_: &str, _: &[String]) -> anyhow::Result<()> {
    bail!(WITHOUT)
}

pub(super) fn exactly_once(
    _: &KafkaMember,
    _: &str,
) -> anyhow::Result<(Box<dyn Source>, Box<dyn Sink>)> {
    bail!(WITHOUT)
}

pub(super) fn dead_letters(_: &str, _: &[String]) -> anyhow::Result<Box<dyn DeadLetters>> {
    bail!(WITHOUT)
}

pub(super) fn output(_: &str, _: &[String]) -> anyhow::Result<Box<dyn Sink>> {
    bail!(WITHOUT)
}

pub(super) fn lags(_: &str, _: &[String], _: &str) -> anyhow::Result<Vec<PartitionLag>> {
    bail!(WITHOUT)
}

/// Never constructed.
pub(super) struct PendingSends {
    pub(super) written: u64,
}

impl PendingSends {
    pub(super) fn new(_: &str, _: &[String]) -> anyhow::Result<Self> {
        bail!(WITHOUT)
    }

    pub(super) fn append(&mut self, _: &Record) -> anyhow::Result<()> {
        bail!(WITHOUT)
    }

    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        bail!(WITHOUT)
    }
}
