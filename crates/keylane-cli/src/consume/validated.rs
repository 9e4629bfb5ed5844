//! Validated settings with their defaults: errors are reported before the consumer starts.

use std::fs;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::Duration;

use keylane_stream::retry::{Backoff, OnExhausted, RetryLimit, RetryPolicy, RetryRule};

use super::environment::HandlerEnvironment;
use super::format_settings::PlannedFormat;
use super::invalid_settings::{InvalidSettings, wrong};
use super::key_settings::PlannedKeys;
use super::letters;
use super::listen_token::ListenToken;
use super::pace_settings::PlannedPace;
use super::settings::{
    ConsumeSettings, ForeignProgressPolicy, KafkaProtocol, KafkaStart, NoKey, OffsetMap, OnFail,
    OnRefused, PayloadAs, RecordOrder,
};
use super::source_settings::{PlaceKinds, refuse_useless};
use super::topics;
use crate::duration_arg::DurationArg;
use crate::parallelism_arg::ParallelismArg;
use crate::worker::WorkerKeys;

/// Validated settings of a consumer.
#[derive(Debug)]
pub(super) struct ConsumePlan {
    pub(super) source: PlannedSource,
    pub(super) keys: PlannedKeys,
    pub(super) order: RecordOrder,
    pub(super) no_key: NoKey,
    pub(super) format: PlannedFormat,
    pub(super) pace: PlannedPace,
    pub(super) payload: PayloadAs,
    pub(super) jobs: usize,
    pub(super) handler: HandlerPlan,
    /// Variables that a command gets.
    pub(super) environment: HandlerEnvironment,
    /// How records of a key are handled together, if they are.
    pub(super) batch: Option<BatchLimits>,
    pub(super) policy: RetryPolicy<FailureClass>,
    pub(super) dead_letters: Option<DeadLetters>,
    /// Sink for results.
    pub(super) output: Option<OutputTarget>,
    pub(super) commit_interval: Duration,
    pub(super) commit_batch_size: u64,
    pub(super) max_in_flight: usize,
    pub(super) max_in_flight_bytes: usize,
    pub(super) shutdown_timeout: Duration,
    pub(super) listen: Option<String>,
    /// Token for commands at this address.
    pub(super) listen_token: Option<ListenToken>,
    pub(super) stall_timeout: Duration,
}

#[derive(Debug, PartialEq)]
pub(super) enum PlannedSource {
    Kafka(KafkaMember),
    Journal {
        path: PathBuf,
        group: String,
        to_the_end: bool,
    },
    File {
        path: PathBuf,
        state: PathBuf,
        follow: bool,
    },
    /// Dead letters of a file.
    Letters {
        path: PathBuf,
        state: PathBuf,
    },
    Stdin,
}

/// A member of a group.
#[derive(Debug, PartialEq)]
pub(super) struct KafkaMember {
    pub(super) address: String,
    pub(super) group: String,
    pub(super) client: Vec<String>,
    pub(super) protocol: KafkaProtocol,
    pub(super) member: Option<String>,
    pub(super) start: KafkaStart,
    pub(super) out_of_range: KafkaStart,
    pub(super) foreign_progress: ForeignProgressPolicy,
    pub(super) offset_map: OffsetMap,
    pub(super) to_the_end: bool,
}

/// Time that a partition may take to be given back after the shutdown timeout: the end of killed
/// commands, and the last commit.
const GIVE_BACK: Duration = Duration::from_secs(15);

impl KafkaMember {
    /// Returns a time of the client, or its default.
    fn client_time(&self, name: &str, default_ms: u64) -> Duration {
        let settings = self.client.iter().rev().filter_map(|setting| setting.split_once('='));
        let value = settings.filter(|(key, _)| *key == name).find_map(|(_, ms)| ms.parse().ok());
        Duration::from_millis(value.unwrap_or(default_ms))
    }

    /// Returns the time between SIGTERM and SIGKILL for the commands of a member that was killed. They
    /// must have ended before the group gives its partitions to others, which happens a session
    /// timeout after its last heartbeat.
    pub(super) fn grace_after_kill(&self) -> Duration {
        let session = self.client_time("session.timeout.ms", 45_000);
        let heartbeat = self.client_time("heartbeat.interval.ms", 3_000);
        (session.saturating_sub(heartbeat) / 2).min(keylane_process::GRACE)
    }

    /// Checks that partitions can be given back before the group removes this member.
    fn check_times(&self, shutdown_timeout: Duration) -> Result<(), InvalidSettings> {
        let allowed = self.client_time("max.poll.interval.ms", 300_000);
        let needed = shutdown_timeout + GIVE_BACK;
        if needed <= allowed {
            return Ok(());
        }
        let what = format!(
            "--shutdown-timeout is {}, and the group gives the partitions of a member to others after {} \
             (max.poll.interval.ms of the client), while its commands may still run; lower \
             --shutdown-timeout to {} or less, or add --client max.poll.interval.ms={}",
            seconds(shutdown_timeout),
            seconds(allowed),
            seconds(allowed.saturating_sub(GIVE_BACK)),
            needed.as_millis()
        );
        wrong("shutdown-timeout", what)
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[derive(Debug)]
pub(super) enum HandlerPlan {
    Command { words: Vec<String>, timeout: Option<Duration> },
    Worker { words: Vec<String>, timeout: Option<Duration>, placement: WorkerKeys },
    Http { url: String, timeout: Duration },
}

/// Maximum number of records of a key in a batch, and the time for which the first waits for
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchLimits {
    pub(super) most: usize,
    pub(super) linger: Duration,
}

#[derive(Debug)]
pub(super) enum DeadLetters {
    File(PathBuf),
    Journal(PathBuf),
    Kafka { address: String, client: Vec<String> },
}

#[derive(Debug)]
pub(super) enum OutputTarget {
    Journal(PathBuf),
    Kafka {
        address: String,
        client: Vec<String>,
    },
    /// Into this topic, by transactions with the progress in the source, which is a topic, too.
    ExactlyOnce {
        topic: String,
    },
}

/// Class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FailureClass {
    /// It may work the next time.
    Failed,
    /// It never will.
    Refused,
    /// The record was handled and its result is lost: no record can be completed.
    NotWritten,
}

impl ConsumePlan {
    pub(super) fn new(mut settings: ConsumeSettings) -> Result<Self, InvalidSettings> {
        settings.client = Some(client(&settings)?);
        // In the order in which they are written: a configuration without either lacks the source first.
        let source = source(&settings)?;
        let handler = handler(&settings)?;
        let policy = policy(&settings)?;
        let client = settings.client.clone().unwrap_or_default();
        let dead_letters = settings.dead_letters.as_deref();
        let dead_letters =
            dead_letters.map(|place| self::dead_letters(place, client)).transpose()?;
        let output = output(&settings)?;
        if dead_letters.is_none()
            && policy.rules().any(|rule| rule.on_exhausted == OnExhausted::DeadLetter)
        {
            let on_fail = settings.on_fail.unwrap_or(letters::default_on_fail(&settings));
            let is_on_fail = matches!(on_fail, OnFail::DeadLetter);
            let setting = if is_on_fail { "on-fail" } else { "on-refused" };
            return wrong(setting, "dead letters need a place; add --dead-letters file:PATH");
        }
        let order = settings.order.unwrap_or(RecordOrder::Key);
        refuse_zeros(&settings)?;
        topics::refuse_loops(&settings)?;
        let jobs = default_jobs(&handler);
        if settings.env.is_some() && matches!(handler, HandlerPlan::Http { .. }) {
            return wrong("env", "--env is for a command, and --http starts none; leave out --env");
        }
        let batch = batch(&settings)?;
        let pace = PlannedPace::new(&settings, order, batch.is_some());
        let pace = pace.or_else(|(setting, what)| wrong(setting, what))?;
        let keys = PlannedKeys::new(&settings, order, &pace);
        let keys = keys.or_else(|(setting, what)| wrong(setting, what))?;
        let payload = payload(&settings)?;
        let shutdown_timeout = span(settings.shutdown_timeout, 30);
        if let PlannedSource::Kafka(member) = &source {
            member.check_times(shutdown_timeout)?;
        }
        let format = format(&settings, &source)?;
        refuse_useless(&settings, place_kinds(&source, dead_letters.as_ref(), output.as_ref()))?;
        let listen_token = listen(&settings)?;
        if matches!(source, PlannedSource::File { .. } | PlannedSource::Stdin)
            && order == RecordOrder::Key
            && !keys.names_any()
        {
            return wrong(
                "source",
                "lines have no key of their own; add --key KEY, or --order none",
            );
        }
        Ok(ConsumePlan {
            source,
            keys,
            order,
            no_key: settings.no_key.unwrap_or(NoKey::Serial),
            format,
            pace,
            payload,
            jobs: settings.jobs.map_or(jobs, ParallelismArg::count),
            handler,
            environment: HandlerEnvironment::new(settings.env),
            batch,
            policy,
            dead_letters,
            output,
            commit_interval: span(settings.commit_interval, 1),
            commit_batch_size: settings.commit_batch_size.unwrap_or(10_000),
            max_in_flight: settings.max_in_flight.unwrap_or(4_096),
            max_in_flight_bytes: settings.max_in_flight_bytes.unwrap_or(16 << 20),
            shutdown_timeout,
            listen: settings.listen,
            listen_token,
            stall_timeout: span(settings.stall_timeout, 60),
        })
    }
}

fn place_kinds(
    source: &PlannedSource,
    dead_letters: Option<&DeadLetters>,
    output: Option<&OutputTarget>,
) -> PlaceKinds {
    let source_is_topic = matches!(source, PlannedSource::Kafka(_));
    PlaceKinds {
        source_is_topic,
        any_is_topic: source_is_topic
            || matches!(dead_letters, Some(DeadLetters::Kafka { .. }))
            || matches!(
                output,
                Some(OutputTarget::Kafka { .. } | OutputTarget::ExactlyOnce { .. })
            ),
        source_has_state: matches!(
            source,
            PlannedSource::File { .. } | PlannedSource::Letters { .. }
        ),
    }
}

fn format(
    settings: &ConsumeSettings,
    source: &PlannedSource,
) -> Result<PlannedFormat, InvalidSettings> {
    let planned = PlannedFormat::new(settings);
    let format = planned.or_else(|(setting, what)| wrong(setting, what))?;
    if format.has_header
        && matches!(source, PlannedSource::Kafka(_) | PlannedSource::Journal { .. })
    {
        let what = "--header is for a file or a pipe, whose first row has the names; leave it out, and number the columns";
        return wrong("header", what);
    }
    Ok(format)
}

fn refuse_zeros(settings: &ConsumeSettings) -> Result<(), InvalidSettings> {
    for (name, zero) in [
        ("batch", settings.batch == Some(0)),
        ("commit-batch-size", settings.commit_batch_size == Some(0)),
        ("max-in-flight", settings.max_in_flight == Some(0)),
    ] {
        if zero {
            return wrong(
                name,
                format!("--{name} is 1 at least; write a larger number, or leave it out"),
            );
        }
    }
    Ok(())
}

fn span(span: Option<DurationArg>, default_seconds: u64) -> Duration {
    span.map_or(Duration::from_secs(default_seconds), |span| span.0)
}

/// Default of `jobs`.
fn default_jobs(handler: &HandlerPlan) -> usize {
    match handler {
        HandlerPlan::Http { .. } => 100,
        HandlerPlan::Command { .. } | HandlerPlan::Worker { .. } => {
            ParallelismArg::default().count()
        }
    }
}

/// Settings of the client: those of the file, then those with precedence.
fn client(settings: &ConsumeSettings) -> Result<Vec<String>, InvalidSettings> {
    let mut client = Vec::new();
    if let Some(path) = &settings.client_config {
        let text = fs::read_to_string(path).or_else(|error| {
            wrong(
                "client-config",
                format!("cannot read {}: {error}; check the name", path.display()),
            )
        })?;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                // The line is not repeated, for it may be a secret.
                let place = format!("{}:{}", path.display(), number + 1);
                let what = format!("{place} is no setting of the client; write NAME=VALUE");
                return wrong("client-config", what);
            };
            client.push(format!("{}={}", name.trim(), value.trim()));
        }
    }
    client.extend(settings.client.iter().flatten().cloned());
    Ok(client)
}

fn source(settings: &ConsumeSettings) -> Result<PlannedSource, InvalidSettings> {
    let Some(text) = settings.source.as_deref() else {
        let some = "kafka://HOST:PORT/TOPIC, journal:PATH, file:PATH, letters:PATH or -";
        return wrong("source", format!("there is no source; name one, as in {some}"));
    };
    match text.split_once(':') {
        Some(("kafka", _)) => match &settings.group {
            Some(group) => Ok(PlannedSource::Kafka(KafkaMember {
                address: text.to_owned(),
                group: group.clone(),
                client: settings.client.clone().unwrap_or_default(),
                protocol: settings.protocol.unwrap_or(KafkaProtocol::Cooperative),
                member: settings.group_instance_id.clone(),
                start: settings.start.unwrap_or(KafkaStart::First),
                out_of_range: settings.out_of_range.unwrap_or(KafkaStart::Refuse),
                foreign_progress: settings
                    .foreign_progress
                    .unwrap_or(ForeignProgressPolicy::Refuse),
                offset_map: settings.offset_map.unwrap_or(OffsetMap::Kl2),
                to_the_end: settings.to_the_end.unwrap_or(false),
            })),
            None => wrong("source", "a topic's progress belongs to a group; add --group NAME"),
        },
        Some(("journal", path)) if !path.is_empty() => match &settings.group {
            Some(group) => Ok(PlannedSource::Journal {
                path: path.into(),
                group: group.clone(),
                to_the_end: settings.to_the_end.unwrap_or(false),
            }),
            None => wrong("source", "a journal's progress belongs to a group; add --group NAME"),
        },
        Some(("file", path)) if !path.is_empty() => {
            let state = settings.state.clone();
            let state = state.unwrap_or_else(|| format!("{path}.keylane").into());
            let follow = !settings.to_the_end.unwrap_or(true);
            Ok(PlannedSource::File { path: path.into(), state, follow })
        }
        Some((letters::SCHEME, path)) if !path.is_empty() => {
            let (path, state) = letters::source(settings, path)?;
            Ok(PlannedSource::Letters { path, state })
        }
        _ if text == "-" => Ok(PlannedSource::Stdin),
        _ => {
            let some = "kafka://HOST:PORT/TOPIC, journal:PATH, file:PATH, letters:PATH or -";
            wrong("source", format!("`{text}` is no source; write {some}"))
        }
    }
}

fn handler(settings: &ConsumeSettings) -> Result<HandlerPlan, InvalidSettings> {
    let timeout = settings.http_timeout.map_or(Duration::from_secs(30), |span| span.0);
    let worker = settings.worker.unwrap_or(false);
    match (settings.command.as_deref(), &settings.http) {
        (Some([]), None) => wrong("command", "the command is empty; name a program"),
        (Some(_), None) if worker && settings.timeout.is_some() => {
            wrong("timeout", "it is for commands, and a worker runs on; write --worker-timeout")
        }
        (None, Some(_)) if settings.timeout.is_some() => {
            wrong("timeout", "it is for commands; write --http-timeout for requests")
        }
        (Some(words), None) if worker => {
            let timeout = settings.worker_timeout.map(|span| span.0);
            let placement = settings.worker_keys.unwrap_or_default();
            Ok(HandlerPlan::Worker { words: words.to_vec(), timeout, placement })
        }
        _ if settings.worker_keys.is_some() => {
            wrong("worker-keys", "only workers have keys of their own; add --worker")
        }
        _ if settings.worker_timeout.is_some() => {
            wrong("worker-timeout", "only a worker has answers to be late with; add --worker")
        }
        (Some(words), None) => {
            let timeout = settings.timeout.map(|span| span.0);
            Ok(HandlerPlan::Command { words: words.to_vec(), timeout })
        }
        (None, Some(_)) if worker => wrong("worker", "an address is no worker; name a command"),
        (None, Some(url)) if url.starts_with("http://") || url.starts_with("https://") => {
            Ok(HandlerPlan::Http { url: url.clone(), timeout })
        }
        (None, Some(url)) => wrong(
            "http",
            format!("`{url}` does not begin with http:// or https://; write a whole address"),
        ),
        (None, None) => {
            let what = "the records have no handler; add a command after --, --http URL, or `command` or `http` in the \
                        configuration";
            wrong("command", what)
        }
        (Some(_), Some(_)) => wrong("http", "it is set beside a command; keep one of them"),
    }
}

/// Checks the listening address: the endpoint shows keys without authentication. Returns the token for
/// its commands, if they are allowed.
fn listen(settings: &ConsumeSettings) -> Result<Option<ListenToken>, InvalidSettings> {
    let Some(address) = settings.listen.as_deref() else {
        return match settings.listen_token_file {
            Some(_) => wrong(
                "listen-token-file",
                "--listen-token-file is for requests to --listen, which is not set; add --listen ADDRESS",
            ),
            None => Ok(None),
        };
    };
    // An invalid address is refused when the socket is bound.
    let resolved: Vec<_> = address.to_socket_addrs().into_iter().flatten().collect();
    if settings.listen_insecure == Some(true) || resolved.iter().all(|at| at.ip().is_loopback()) {
        let token = settings.listen_token_file.as_deref().map(ListenToken::read).transpose();
        return token.or_else(|why| wrong("listen-token-file", why));
    }
    let what = format!(
        "{address} is not loopback, and what listens there shows keys to all that reach it; listen at \
         127.0.0.1, or add --listen-insecure"
    );
    wrong("listen", what)
}

fn payload(settings: &ConsumeSettings) -> Result<PayloadAs, InvalidSettings> {
    let payload = settings.payload.unwrap_or(PayloadAs::Arg);
    let is_plain_command = settings.http.is_none() && settings.worker != Some(true);
    match payload {
        PayloadAs::Stdin if !is_plain_command => wrong(
            "payload",
            "`stdin` is for a command that runs for each record; leave out --payload, or write --payload json",
        ),
        PayloadAs::Stdin if settings.batch.is_some() => wrong(
            "payload",
            "a command gets a batch as lines on its standard input; leave out --payload, or write --payload json",
        ),
        payload => Ok(payload),
    }
}

fn batch(settings: &ConsumeSettings) -> Result<Option<BatchLimits>, InvalidSettings> {
    let Some(most) = settings.batch else {
        return match settings.linger {
            Some(_) => wrong("linger", "only a batch waits for others; add --batch N"),
            None => Ok(None),
        };
    };
    if settings.worker == Some(true) {
        return wrong(
            "batch",
            "a worker gets a line for each record; leave out --batch or --worker",
        );
    }
    if settings.output.is_some() {
        return wrong(
            "batch",
            "what comes of a batch belongs to none of its records; leave out --batch or --output",
        );
    }
    if settings.order == Some(RecordOrder::None) {
        return wrong("batch", "a batch has records of a key; leave out --batch or --order none");
    }
    let linger = settings.linger.map_or(Duration::from_millis(5), |span| span.0);
    Ok(Some(BatchLimits { most, linger }))
}

fn policy(settings: &ConsumeSettings) -> Result<RetryPolicy<FailureClass>, InvalidSettings> {
    let first = settings.backoff.map_or(Duration::from_secs(1), |span| span.0);
    let max = settings.max_backoff.map_or(Duration::from_secs(60).max(first), |span| span.0);
    let on_exhausted = match settings.on_fail.unwrap_or(letters::default_on_fail(settings)) {
        OnFail::DeadLetter => OnExhausted::DeadLetter,
        OnFail::Skip => OnExhausted::Skip,
        OnFail::StopKey => OnExhausted::StopKey,
        OnFail::Stop => OnExhausted::Stop,
    };
    let attempts = Some(settings.attempts.unwrap_or(10)).filter(|attempts| *attempts > 0);
    let limit = RetryLimit { attempts, time: None };
    let failed =
        RetryRule { limit, backoff: Backoff { first, max, ..Backoff::default() }, on_exhausted };
    let refused = match settings.on_refused {
        Some(OnRefused::Retry) => failed,
        other => RetryRule {
            limit: RetryLimit::attempts(1),
            on_exhausted: match other {
                Some(OnRefused::DeadLetter) => OnExhausted::DeadLetter,
                Some(OnRefused::Skip) => OnExhausted::Skip,
                Some(OnRefused::StopKey) => OnExhausted::StopKey,
                Some(OnRefused::Stop) => OnExhausted::Stop,
                Some(OnRefused::Retry) | None => on_exhausted,
            },
            ..failed
        },
    };
    // Neither skipped nor written as a dead letter, because the record is correct: it is delivered
    // again at the next start.
    let not_written =
        RetryRule { limit: RetryLimit::attempts(1), on_exhausted: OnExhausted::Stop, ..failed };
    let policy = RetryPolicy::new(failed)
        .and_then(|policy| policy.with(FailureClass::Refused, refused))
        .and_then(|policy| policy.with(FailureClass::NotWritten, not_written));
    policy.or_else(|error| wrong("max-backoff", error.to_string()))
}

/// Requirements of exactly once.
const ONCE: &str = "exactly once is from a topic to a topic of the same brokers; name both as \
                    kafka://HOST:PORT/TOPIC, with the same hosts, or leave out --exactly-once";

fn output(settings: &ConsumeSettings) -> Result<Option<OutputTarget>, InvalidSettings> {
    let Some(text) = settings.output.as_deref() else {
        return match settings.exactly_once {
            Some(true) => wrong("exactly-once", ONCE),
            _ => Ok(None),
        };
    };
    match text.split_once(':') {
        Some(("kafka", _)) if settings.exactly_once == Some(true) => {
            // One transaction is of one cluster, which both settings must name in the same form.
            let from = settings.source.as_deref().and_then(topics::brokers_and_topics);
            match (from, topics::brokers_and_topics(text)) {
                (Some((brokers, _)), Some((same, topic))) if brokers == same => {
                    Ok(Some(OutputTarget::ExactlyOnce { topic: topic.to_owned() }))
                }
                _ => wrong("exactly-once", ONCE),
            }
        }
        Some(("kafka", _)) => {
            let client = settings.client.clone().unwrap_or_default();
            Ok(Some(OutputTarget::Kafka { address: text.to_owned(), client }))
        }
        Some(("journal", _)) if settings.exactly_once == Some(true) => wrong("exactly-once", ONCE),
        Some(("journal", path)) if !path.is_empty() => Ok(Some(OutputTarget::Journal(path.into()))),
        _ => {
            let some = "journal:PATH or kafka://HOST:PORT/TOPIC";
            wrong("output", format!("`{text}` is no place for output; write {some}"))
        }
    }
}

fn dead_letters(text: &str, client: Vec<String>) -> Result<DeadLetters, InvalidSettings> {
    match text.split_once(':') {
        Some(("kafka", _)) => Ok(DeadLetters::Kafka { address: text.to_owned(), client }),
        Some(("file", path)) if !path.is_empty() => Ok(DeadLetters::File(path.into())),
        Some(("journal", path)) if !path.is_empty() => Ok(DeadLetters::Journal(path.into())),
        _ => {
            let some = "file:PATH, journal:PATH or kafka://HOST:PORT/TOPIC";
            wrong("dead-letters", format!("`{text}` is no place; write {some}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consume::source_settings::keep_for_source;

    fn member(client: &[&str]) -> KafkaMember {
        KafkaMember {
            address: "kafka://here:9092/orders".to_owned(),
            group: "g".to_owned(),
            client: client.iter().map(ToString::to_string).collect(),
            protocol: KafkaProtocol::Cooperative,
            member: None,
            start: KafkaStart::First,
            out_of_range: KafkaStart::Refuse,
            foreign_progress: ForeignProgressPolicy::Refuse,
            offset_map: OffsetMap::Kl2,
            to_the_end: false,
        }
    }

    #[test]
    fn a_shutdown_timeout_fits_into_the_time_of_the_group() {
        let check = |client: &[&str], seconds| {
            member(client).check_times(Duration::from_secs(seconds)).map_err(|it| it.to_string())
        };
        assert_eq!(check(&[], 285), Ok(()));
        let error = check(&[], 286).unwrap_err();
        assert!(error.contains("286 s") && error.contains("to 285 s or less"), "{error}");
        assert!(error.contains("client max.poll.interval.ms=301000"), "{error}");
        // The last value of a setting counts.
        let client = ["max.poll.interval.ms=1", "max.poll.interval.ms=600000"];
        assert_eq!(check(&client, 585), Ok(()));
        assert!(check(&client, 586).is_err());
    }

    #[test]
    fn a_setting_of_another_source_is_refused() {
        let refused = |source: &str, settings: &ConsumeSettings| {
            let given = ConsumeSettings {
                source: Some(source.to_owned()),
                group: Some("g".to_owned()),
                key: Some(vec!["1".to_owned()]),
                command: Some(vec!["true".to_owned()]),
                ..ConsumeSettings::default()
            };
            let plan = ConsumePlan::new(settings.clone().or(given));
            plan.err().map(|error| error.to_string())
        };
        let none = ConsumeSettings::default;
        let topic = "kafka://here:9092/orders";
        for (name, settings) in [
            (
                "group-instance-id",
                ConsumeSettings { group_instance_id: Some("one".to_owned()), ..none() },
            ),
            ("protocol", ConsumeSettings { protocol: Some(KafkaProtocol::Broker), ..none() }),
            ("start", ConsumeSettings { start: Some(KafkaStart::Last), ..none() }),
            ("out-of-range", ConsumeSettings { out_of_range: Some(KafkaStart::First), ..none() }),
            (
                "foreign-progress",
                ConsumeSettings { foreign_progress: Some(ForeignProgressPolicy::Repeat), ..none() },
            ),
            ("offset-map", ConsumeSettings { offset_map: Some(OffsetMap::Kl1), ..none() }),
        ] {
            let why = format!("--{name} is for a source kafka://HOST:PORT/TOPIC; leave it out");
            for source in ["journal:j", "file:f", "letters:f", "-"] {
                assert_eq!(refused(source, &settings).as_deref(), Some(&*why), "{source}");
                let mut kept = settings.clone();
                keep_for_source(&mut kept, source);
                assert_eq!(refused(source, &kept), None, "{source}");
            }
            assert_eq!(refused(topic, &settings), None);
        }
        let state = ConsumeSettings { state: Some("s".into()), ..none() };
        for source in ["journal:j", "-", topic] {
            let error = refused(source, &state).unwrap();
            assert!(error.starts_with("--state is for a source file:PATH"), "{error}");
            let mut kept = state.clone();
            keep_for_source(&mut kept, source);
            assert_eq!(refused(source, &kept), None, "{source}");
        }
        for source in ["file:f", "letters:f"] {
            assert_eq!(refused(source, &state), None);
        }
    }

    #[test]
    fn commands_of_a_killed_member_end_within_its_session() {
        assert_eq!(member(&[]).grace_after_kill(), keylane_process::GRACE);
        let client = ["session.timeout.ms=6000", "heartbeat.interval.ms=2000"];
        assert_eq!(member(&client).grace_after_kill(), Duration::from_secs(2));
    }
}
