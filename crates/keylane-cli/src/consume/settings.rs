//! Every setting of `keylane consume`, in one place: an option of the command line, and a key of the
//! configuration file. What the command line says counts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::span::Span;

/// The settings, as far as they were given.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Settings {
    /// Where records come from: kafka://HOST:PORT/TOPIC, journal:PATH,
    /// file:PATH, or - for standard input, a record in each line.
    #[arg(value_name = "SOURCE")]
    pub(crate) source: Option<String>,

    /// The consumer group whose progress is kept, in the journal or by the
    /// brokers.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,

    /// A setting of the Kafka client, by librdkafka's name; can be given several
    /// times: for TLS, names and passwords, say.
    #[arg(short = 'X', long, value_name = "NAME=VALUE")]
    pub(crate) client: Option<Vec<String>>,

    /// How the members of a Kafka group share its partitions: cooperatively by
    /// default.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) protocol: Option<KafkaProtocol>,

    /// The member's own name in a Kafka group: back under its name in time, it
    /// gets its partitions back.
    #[arg(long, value_name = "NAME")]
    pub(crate) member: Option<String>,

    /// Where a Kafka group begins that has stored nothing yet: at the first
    /// record by default.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) start: Option<KafkaStart>,

    /// Where a Kafka partition continues whose next record does not exist any
    /// more: retention has removed it, brokers have lost it, or the group was
    /// set beyond the end. By default that is an error.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) out_of_range: Option<KafkaStart>,

    /// What to do with the progress of a Kafka group that another product has
    /// stored, or that is damaged: by default that is an error.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) foreign_progress: Option<ForeignProgress>,

    /// The version in which a Kafka group's progress is written: kl1 while a
    /// member of it runs that knows no other, kl2 by default.
    #[arg(long, value_enum, value_name = "VERSION")]
    pub(crate) offset_map: Option<OffsetMap>,

    /// A file with settings of the Kafka client, NAME=VALUE in each line: for
    /// what must not stand in a command line, such as sasl.password.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_config: Option<PathBuf>,

    /// Where the progress in a file is kept; beside it, with .keylane at the
    /// end of the name, by default.
    #[arg(long, value_name = "PATH")]
    pub(crate) state: Option<PathBuf>,

    /// End when all there is has been handled: so by default for files.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) to_the_end: Option<bool>,

    /// What order is kept for, as in keylane run: a .json.path, a /regex/, a
    /// {template}, a field; by default the record's own key.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Keep order by key (this is the default), within each partition, or not.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) order: Option<Order>,

    /// What happens to records without a key: by default they are handled one
    /// by one.
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) no_key: Option<NoKey>,

    /// Payloads are JSON, so that their members have names.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ndjson: Option<bool>,

    /// How a command gets the payload: as an argument (by default), on its
    /// standard input, or with all that the record has as a line of JSON there,
    /// which workers and services can get as well.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) payload: Option<PayloadAs>,

    /// How many records are handled at a time: one per CPU by default, 100
    /// with --http.
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,

    /// The command is started -j times, gets each payload as a line, and
    /// answers it with a line, which means done.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) worker: Option<bool>,

    /// How long a worker may take for an answer; then it is ended, and what it
    /// had got has failed: without end by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) worker_timeout: Option<Span>,

    /// A variable of this environment that the command gets; can be given
    /// several times; * is all of them: PATH, HOME, LANG and TZ by default.
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Option<Vec<String>>,

    /// POST each payload to this address; an answer of 2xx means done.
    #[arg(long, value_name = "URL")]
    pub(crate) http: Option<String>,

    /// How long an answer may take: 30s by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) http_timeout: Option<Span>,

    /// Handle up to N records of a key at once, one after another of them: the
    /// command gets their payloads as lines on its input, the service as the
    /// lines of one request.
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,

    /// How long the first of a batch waits for others: 5ms by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) linger: Option<Span>,

    /// How often a record is tried: 10 times by default; 0 means without end.
    #[arg(long, value_name = "N")]
    pub(crate) attempts: Option<u32>,

    /// The wait after the first failure: 1s by default. It doubles with each
    /// further one, and a part of it is left to chance.
    #[arg(long, value_name = "TIME")]
    pub(crate) backoff: Option<Span>,

    /// The longest wait between attempts: 1m by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) longest_backoff: Option<Span>,

    /// What happens after the last attempt: by default everything stops.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_fail: Option<OnFail>,

    /// What happens to records that are refused for good, by an answer of 3xx
    /// or 4xx but 408, 425 and 429, or exit status 65: by default what happens
    /// after the last attempt, at once.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_refused: Option<OnRefused>,

    /// Where dead letters go: file:PATH, a line of JSON each, journal:PATH, or
    /// kafka://HOST:PORT/TOPIC.
    #[arg(long, value_name = "WHERE")]
    pub(crate) dead_letters: Option<String>,

    /// Append what comes of each record to journal:PATH or
    /// kafka://HOST:PORT/TOPIC, with its key: what the command prints, or the
    /// worker or the service answers. It is not printed then.
    #[arg(long, value_name = "WHERE")]
    pub(crate) output: Option<String>,

    /// From topic to topic: what comes of a record is written in a transaction
    /// with its progress, and so is there once.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) exactly_once: Option<bool>,

    /// How long after the last time progress is stored: 1s by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) commit_every: Option<Span>,

    /// After how many records it is stored sooner: 10,000 by default.
    #[arg(long, value_name = "N")]
    pub(crate) commit_after: Option<u64>,

    /// How many records of a partition may be under way: 4,096 by default.
    #[arg(long, value_name = "N")]
    pub(crate) most_records: Option<usize>,

    /// How many bytes they may take: 16 MiB by default.
    #[arg(long, value_name = "BYTES")]
    pub(crate) most_bytes: Option<usize>,

    /// How long what runs is awaited at the end: 30s by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) stop_within: Option<Span>,

    /// Serve /healthz, /readyz, /metrics and /lag at this address, such as
    /// 127.0.0.1:9100.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,

    /// Listen at an address that is not loopback, too. Whoever reaches it sees
    /// keys and positions.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) listen_insecure: Option<bool>,

    /// After how long without progress a partition is unhealthy: 1m by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) stalled_after: Option<Span>,

    /// The command and its arguments, as in keylane run.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Option<Vec<String>>,
}

/// How the members of a Kafka group share its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KafkaProtocol {
    /// The members agree, and hand over one by one what moves.
    Cooperative,
    /// The broker decides, as of Kafka 4.0 (KIP-848).
    Broker,
}

/// Where reading a Kafka partition begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KafkaStart {
    /// At the first record that there is.
    First,
    /// Behind the last record that there is.
    Last,
    /// Nowhere: that is an error.
    Refuse,
}

/// What is done with progress that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ForeignProgress {
    /// It is an error. What the parallel consumer has stored is taken over.
    Refuse,
    /// The partition is repeated from the committed offset.
    Repeat,
}

/// In which version progress is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OffsetMap {
    /// Without leader epochs.
    Kl1,
    /// With leader epochs.
    Kl2,
}

/// How a handler gets the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PayloadAs {
    /// In place of {}, or as the last argument.
    Arg,
    /// On standard input, as it is.
    Stdin,
    /// A line of JSON with the whole record.
    Json,
}

/// What order is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Records of a key are handled one after another.
    Key,
    /// Records of a partition are handled one after another.
    Partition,
    /// No record waits for another.
    None,
}

/// What happens to records without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NoKey {
    /// They are handled one after another, as if they had a key in common.
    Serial,
    /// They are handled at any time.
    Unordered,
    /// They are refused for good.
    Reject,
}

/// What happens after the last attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnFail {
    /// The record goes to the dead letters, and its key goes on.
    DeadLetter,
    /// The record counts as done, and its key goes on.
    Skip,
    /// The record's key stops, and the others go on.
    StopKey,
    /// Everything stops.
    Stop,
}

/// What happens to a record that is refused for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnRefused {
    /// It is tried again, like any other.
    Retry,
    /// The record goes to the dead letters, and its key goes on.
    DeadLetter,
    /// The record counts as done, and its key goes on.
    Skip,
    /// The record's key stops, and the others go on.
    StopKey,
    /// Everything stops.
    Stop,
}

/// Fills in each of these settings that is not there.
macro_rules! or {
    ($first:ident, $second:ident, $($field:ident),* $(,)?) => {
        Settings { $($field: $first.$field.or($second.$field)),* }
    };
}

impl Settings {
    /// These, and those of another for what is not set here.
    pub(crate) fn or(self, other: Settings) -> Settings {
        or!(
            self,
            other,
            source,
            group,
            client,
            protocol,
            member,
            start,
            out_of_range,
            foreign_progress,
            offset_map,
            client_config,
            state,
            to_the_end,
            key,
            order,
            no_key,
            ndjson,
            payload,
            jobs,
            worker,
            worker_timeout,
            env,
            http,
            http_timeout,
            batch,
            linger,
            attempts,
            backoff,
            longest_backoff,
            on_fail,
            on_refused,
            dead_letters,
            output,
            exactly_once,
            commit_every,
            commit_after,
            most_records,
            most_bytes,
            stop_within,
            listen,
            listen_insecure,
            stalled_after,
            command,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_first_counts() {
        let of = |jobs, attempts| Settings { jobs, attempts, ..Settings::default() };
        let merged = of(Some(1), None).or(of(Some(2), Some(3)));
        assert_eq!((merged.jobs, merged.attempts), (Some(1), Some(3)));
    }
}
