//! Settings of `keylane consume`: each is an option of the command line and a key of the
//! configuration file. The command line takes precedence.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::one_or_several::one_or_several;
use crate::duration_arg::DurationArg;
use crate::parallelism_arg::ParallelismArg;
use crate::rate_arg::RateArg;
use crate::worker::WorkerKeys;

/// The settings, as far as they were given.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ConsumeSettings {
    /// Where records come from: kafka://HOST:PORT/TOPIC, journal:PATH,
    /// file:PATH, or - for standard input, a record in each line; or
    /// letters:PATH for dead letters that are handled again.
    #[arg(value_name = "SOURCE")]
    pub(crate) source: Option<String>,

    /// Consumer group whose progress is stored, in the journal or by the brokers.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,

    /// Setting of the Kafka client, by librdkafka's name; repeatable. For TLS and authentication,
    /// for example.
    #[arg(short = 'X', long, value_name = "NAME=VALUE")]
    pub(crate) client: Option<Vec<String>>,

    /// How the members of a Kafka group share its partitions: cooperatively by
    /// default.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) protocol: Option<KafkaProtocol>,

    /// Name of a static member of a Kafka group, group.instance.id: after a restart in time the
    /// member gets its partitions back.
    #[arg(long, value_name = "NAME")]
    pub(crate) group_instance_id: Option<String>,

    /// Start of a Kafka group without stored progress: the first record by default.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) start: Option<KafkaStart>,

    /// Position of a Kafka partition whose next record does not exist: retention has removed it,
    /// brokers have lost it, or the group was set beyond the end. By default that is an error.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) out_of_range: Option<KafkaStart>,

    /// Handling of the progress of a Kafka group that another product has stored, or that is
    /// damaged: by default that is an error.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) foreign_progress: Option<ForeignProgressPolicy>,

    /// The version in which a Kafka group's progress is written: kl1 while a
    /// member of it runs that knows no other, kl2 by default.
    #[arg(long, value_enum, value_name = "VERSION")]
    pub(crate) offset_map: Option<OffsetMap>,

    /// File with settings of the Kafka client, NAME=VALUE in each line: for secrets that must not
    /// be on a command line, such as sasl.password.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_config: Option<PathBuf>,

    /// Where the progress in a file is kept; beside it, with .keylane at the
    /// end of the name, by default.
    #[arg(long, value_name = "PATH")]
    pub(crate) state: Option<PathBuf>,

    /// End when all records have been handled, which is the default for files. A partition of a
    /// topic is read to where it ended when this member first got it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) to_the_end: Option<bool>,

    /// Ordering key, as in keylane run: a .json.path, a /regex/, a {template}, a field; .path[] means each
    /// element of an array. By default the record's own key. Repeated: a record that involves several keys waits
    /// for the earlier records of all of them, which takes all partitions.
    #[arg(long, value_name = "KEY")]
    #[serde(deserialize_with = "one_or_several")]
    pub(crate) key: Option<Vec<String>>,

    /// A key that the record only shares: records that share it may run together, but not beside a
    /// record with it as key. Repeatable; takes all partitions.
    #[arg(long, value_name = "KEY")]
    #[serde(deserialize_with = "one_or_several")]
    pub(crate) shared_key: Option<Vec<String>>,

    /// Records that wait for all records before them, and hold up all behind them: those with this value in
    /// a field, or that match the expression. Takes all partitions.
    #[arg(long, value_name = "FIELD=VALUE|/REGEX/")]
    pub(crate) barrier: Option<String>,

    /// Keep order by key (this is the default), within each partition, or not.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) order: Option<RecordOrder>,

    /// Handling of records without a key: by default one by one.
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) no_key: Option<NoKey>,

    /// Payloads are JSON, so that their members have names.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ndjson: Option<bool>,

    /// Payloads are rows of comma-separated values, quoted as RFC 4180 says; a row of a file may span
    /// lines.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) csv: Option<bool>,

    /// Payloads are rows of tab-separated values, without quotes.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) tsv: Option<bool>,

    /// The first row of the file or the pipe has the columns' names.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) header: Option<bool>,

    /// Run up to N records of a key at the same time, in no particular order among them.
    #[arg(long, value_name = "N")]
    pub(crate) limit_per_key: Option<NonZeroU16>,

    /// A record replaces the one of its key and partition that still waits: only the latest is worth the work.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) latest: Option<bool>,

    /// Maximum number of records that start in a time, such as 100/s, 5/m or 1/10s. Further attempts do
    /// not count.
    #[arg(long, value_name = "N/TIME")]
    pub(crate) rate: Option<RateArg>,

    /// Maximum number of records of a key that start in a time.
    #[arg(long, value_name = "N/TIME")]
    pub(crate) rate_per_key: Option<RateArg>,

    /// Form in which a command gets the payload: as an argument (by default), on its standard
    /// input, or on its standard input as a line of JSON with all fields of the record. Workers and
    /// services can get the line of JSON, too.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) payload: Option<PayloadAs>,

    /// Number of records handled at the same time, as in keylane run: one per physical core by
    /// default, 100 with --http.
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) jobs: Option<ParallelismArg>,

    /// Timeout of a command; then it gets SIGTERM, and SIGKILL two seconds later, and the attempt has
    /// failed. No timeout by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<DurationArg>,

    /// The command is started -j times, gets each payload as a line, and
    /// answers it with a line, which means done.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) worker: Option<bool>,

    /// Timeout of a worker's answer; then the worker is ended and its records have failed. No
    /// timeout by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) worker_timeout: Option<DurationArg>,

    /// Workers that the records of a key go to: always the same one (sticky, the default), which can
    /// keep state of the key, or the least busy one (any).
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) worker_keys: Option<WorkerKeys>,

    /// Variable of this environment that the command gets; repeatable; * is all of them. PATH,
    /// HOME, LANG and TZ by default.
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Option<Vec<String>>,

    /// POST each payload to this address; an answer of 2xx means done.
    #[arg(long, value_name = "URL")]
    pub(crate) http: Option<String>,

    /// Timeout of a response: 30s by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) http_timeout: Option<DurationArg>,

    /// Handle up to N records of a key at once, one after another of them: the
    /// command gets their payloads as lines on its input, the service as the
    /// lines of one request.
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,

    /// Time for which the first record of a batch waits for others: 5ms by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) linger: Option<DurationArg>,

    /// Maximum number of attempts per record: 10 by default; 0 means unlimited.
    #[arg(long, value_name = "N")]
    pub(crate) attempts: Option<u32>,

    /// The wait after the first failure: 1s by default. It doubles with each
    /// further one, and a part of it is left to chance.
    #[arg(long, value_name = "TIME")]
    pub(crate) backoff: Option<DurationArg>,

    /// The longest wait between attempts: 1m by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) max_backoff: Option<DurationArg>,

    /// Action after the last attempt: by default the consumer stops.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_fail: Option<OnFail>,

    /// Action for records that are refused for good, by a response of 3xx or 4xx except 408, 425
    /// and 429, or exit status 65: by default the action after the last attempt, at once.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_refused: Option<OnRefused>,

    /// Where dead letters go: file:PATH, a line of JSON each, journal:PATH, or
    /// kafka://HOST:PORT/TOPIC.
    #[arg(long, value_name = "WHERE")]
    pub(crate) dead_letters: Option<String>,

    /// Append the result of each record to journal:PATH or kafka://HOST:PORT/TOPIC, with its key:
    /// the command's output, or the answer of the worker or the service. It is not printed then.
    #[arg(long, value_name = "WHERE")]
    pub(crate) output: Option<String>,

    /// From topic to topic: each record's result and progress are written in one transaction, so
    /// that the result is written once.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) exactly_once: Option<bool>,

    /// Interval at which progress is stored: 1s by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) commit_interval: Option<DurationArg>,

    /// Number of records after which progress is stored sooner: 10,000 by default.
    #[arg(long, value_name = "N")]
    pub(crate) commit_batch_size: Option<u64>,

    /// Maximum number of records in flight per partition: 4,096 by default.
    #[arg(long, value_name = "N")]
    pub(crate) max_in_flight: Option<usize>,

    /// Maximum size of these records in bytes: 16 MiB by default.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_in_flight_bytes: Option<usize>,

    /// Time for running handlers at shutdown, and before a partition is given back: 30s by default.
    /// Commands get SIGTERM 5s before its end, and SIGKILL at its end.
    #[arg(long, value_name = "TIME")]
    pub(crate) shutdown_timeout: Option<DurationArg>,

    /// Serve /healthz, /readyz, /metrics and /lag at this address, such as
    /// 127.0.0.1:9100; with a token also /pause, /resume, /retry and /paused.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,

    /// Also listen on an address that is not loopback. Its clients see keys and positions.
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) listen_insecure: Option<bool>,

    /// File of its owner alone with a token in the first line: requests to --listen that have it as a
    /// bearer token can pause and resume a topic, a partition or a key, and retry what waits for that.
    #[arg(long, value_name = "FILE")]
    pub(crate) listen_token_file: Option<PathBuf>,

    /// Time without progress after which a partition is unhealthy: 1m by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) stall_timeout: Option<DurationArg>,

    /// The command and its arguments, as in keylane run.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Option<Vec<String>>,
}

/// How the members of a Kafka group share its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KafkaProtocol {
    /// Members move partitions one by one, by agreement.
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

/// Handling of progress that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ForeignProgressPolicy {
    /// An error. Progress stored by the parallel consumer is adopted.
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

/// Scope of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RecordOrder {
    /// Records of a key are handled one after another.
    Key,
    /// Records of a partition are handled one after another.
    Partition,
    /// No record waits for another.
    None,
}

/// Handling of records without a key.
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

/// Action after the last attempt.
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

/// Action for a record that is refused for good.
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
        ConsumeSettings { $($field: $first.$field.or($second.$field)),* }
    };
}

impl ConsumeSettings {
    /// These settings, with those of `other` where they are unset.
    pub(crate) fn or(self, other: ConsumeSettings) -> ConsumeSettings {
        or!(
            self,
            other,
            source,
            group,
            client,
            protocol,
            group_instance_id,
            start,
            out_of_range,
            foreign_progress,
            offset_map,
            client_config,
            state,
            to_the_end,
            key,
            shared_key,
            barrier,
            order,
            no_key,
            ndjson,
            csv,
            tsv,
            header,
            limit_per_key,
            latest,
            rate,
            rate_per_key,
            payload,
            jobs,
            timeout,
            worker,
            worker_timeout,
            worker_keys,
            env,
            http,
            http_timeout,
            batch,
            linger,
            attempts,
            backoff,
            max_backoff,
            on_fail,
            on_refused,
            dead_letters,
            output,
            exactly_once,
            commit_interval,
            commit_batch_size,
            max_in_flight,
            max_in_flight_bytes,
            shutdown_timeout,
            listen,
            listen_insecure,
            listen_token_file,
            stall_timeout,
            command,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_takes_precedence() {
        let of =
            |batch, attempts| ConsumeSettings { batch, attempts, ..ConsumeSettings::default() };
        let merged = of(Some(1), None).or(of(Some(2), Some(3)));
        assert_eq!((merged.batch, merged.attempts), (Some(1), Some(3)));
    }
}
