//! Configuration file: reading, validation, and messages with line and remedy.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};

use super::kafka;
use super::settings::ConsumeSettings;
use super::source_settings::{keep_for_source, setting_of_a_topic};
use super::validated::{ConsumePlan, DeadLetters, HandlerPlan, OutputTarget, PlannedSource};
use crate::exit::ExitOutcome;
use crate::message::say;
use crate::process;
use crate::renamed::{self, file};

/// Keys of the file with other names than before.
const RENAMED: &[file::RenamedKeys] = &[file::RenamedKeys { path: &[], keys: renamed::CONSUME }];

/// Checks and explains configuration files of keylane consume.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Validates a file as keylane consume would read it.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Prints a file with every setting, its meaning, and its default.
    Example,
}

/// Runs `keylane config`.
pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<ExitOutcome> {
    match &args.what {
        ConfigCommand::Example => print!("{EXAMPLE}"),
        ConfigCommand::Check { file } => {
            check(file)?;
            println!("{}: the configuration is valid", file.display());
        }
    }
    Ok(ExitOutcome::Finished { failed: 0 })
}

fn check(path: &Path) -> anyhow::Result<()> {
    let (text, mut settings) = read(path)?;
    // The command line can add these. Settings of the Kafka client are for some topic.
    let command = settings.http.is_none().then(|| vec!["true".to_owned()]);
    let has_client = settings.client.is_some() || settings.client_config.is_some();
    let is_for_topic = has_client || setting_of_a_topic(&settings).is_some();
    let source = match is_for_topic {
        true => "kafka://given-later:9092/topic",
        false => "journal:given later",
    };
    if settings.source.is_none() {
        // The command line names one, and the file may be for several.
        keep_for_source(&mut settings, source);
    }
    let added = ConsumeSettings {
        source: Some(source.to_owned()),
        group: Some("given later".to_owned()),
        command,
        ..ConsumeSettings::default()
    };
    let at = |setting: Option<&str>, what: &dyn Display| {
        let line = setting.and_then(|setting| line_of(&text, setting));
        let line = line.map_or(String::new(), |line| format!(":{line}"));
        anyhow!("{}{line}: {what}", path.display())
    };
    let plan = ConsumePlan::new(settings.or(added)).map_err(|wrong| at(wrong.setting, &wrong))?;
    if let HandlerPlan::Command { words, .. } | HandlerPlan::Worker { words, .. } = &plan.handler
        && let Some(program) = words.first().filter(|program| !program.contains('{'))
    {
        let found = process::resolve(OsStr::new(program));
        found.map_err(|error| at(Some("command"), &error))?;
    }
    check_kafka(&plan).map_err(|(setting, error)| at(Some(setting), &format!("{error:#}")))
}

/// Checks what the topics of a plan need, without a connection. Returns the setting beside the
/// error.
fn check_kafka(plan: &ConsumePlan) -> Result<(), (&'static str, anyhow::Error)> {
    // The client's settings are the usual cause; without Kafka it is the address.
    let named = |setting| if cfg!(feature = "kafka") { "client" } else { setting };
    if let PlannedSource::Kafka(member) = &plan.source {
        kafka::check(member).map_err(|error| (named("source"), error))?;
    }
    if let Some(DeadLetters::Kafka { address, client }) = &plan.dead_letters {
        kafka::check_output(address, client).map_err(|error| (named("dead-letters"), error))?;
    }
    if let Some(OutputTarget::Kafka { address, client }) = &plan.output {
        kafka::check_output(address, client).map_err(|error| (named("output"), error))?;
    }
    Ok(())
}

/// The settings in a file.
pub(crate) fn load(path: &Path) -> anyhow::Result<ConsumeSettings> {
    read(path).map(|(_, settings)| settings)
}

fn read(path: &Path) -> anyhow::Result<(String, ConsumeSettings)> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read {}; check the name", path.display()))?;
    let (settings, old) = file::parse(&text, RENAMED).map_err(|error| {
        let (line, what) = error.at(&text);
        let remedy = "keylane config example shows every setting";
        anyhow!("{}:{line}: {what}; {remedy}", path.display())
    })?;
    old.iter().for_each(|old| say(old.warning(path)));
    Ok((text, settings))
}

/// The line on which a key is set, by its name or an old one, from 1 on.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let sets = |line: &str, key: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let old = renamed::CONSUME.iter().filter(|renamed| renamed.new == key);
    let names: Vec<_> = old.map(|renamed| renamed.old).chain([key]).collect();
    let sets_any = |line: &str| names.iter().any(|name| sets(line, name));
    text.lines().position(sets_any).map(|index| index + 1)
}

/// Every setting, with its default where it has one.
pub(crate) const EXAMPLE: &str = r#"# keylane consume --config FILE. Each key is also an option of the command line, which counts if both are
# given. Lines with a leading # are examples; the others are the defaults.

# Where records come from: "kafka://HOST:PORT/TOPIC", "journal:PATH", "file:PATH", "letters:PATH" for
# dead letters, or "-" for standard input.
# source = "journal:orders.journal"
# The consumer group whose progress is kept, in the journal or by the brokers.
# group = "billing"
# Kafka: settings of the client, by librdkafka's names; the name of a static member, group.instance.id.
# client = ["security.protocol=SASL_SSL", "sasl.mechanisms=SCRAM-SHA-512"]
# group-instance-id = "billing-1"
protocol = "cooperative" # "cooperative", "broker" (KIP-848)
start = "first"          # for a group that has stored nothing yet: "first", "last", "refuse"
out-of-range = "refuse"  # where the next record does not exist any more: "first", "last", "refuse"
foreign-progress = "refuse" # progress that another product has stored, or that is damaged: "refuse", "repeat"
offset-map = "kl2"       # "kl1" while a member of the group knows no other
# client-config = "client.properties"  # NAME=VALUE in each line, for what must not stand in a command line
# Where the progress in a file is kept.
# state = "orders.ndjson.keylane"
# End when all records have been handled, the default for files; a topic is read to where it ended at the start.
# to-the-end = false

# Ordering key: a .json.path, a /regex/, a {template}, a field; else the record's own key. Several, shared ones and
# barriers need all partitions.
# key = ".client"                      # or [".from", ".to[]"]
# shared-key = ".day"
# barrier = "type=end-of-day"
order = "key"            # "key", "partition", "none"
no-key = "serial"        # "serial", "unordered", "reject"
ndjson = false           # payloads are JSON, so that their members have names
csv = false              # payloads are rows of comma-separated values, or
tsv = false              # of tab-separated values, so that their columns have numbers,
header = false           # or names in the first row of a file or a pipe

# Records of a key at a time, in no order among them; records that start in a time, in all and of a key.
# limit-per-key = 4
# rate = "100/s"
# rate-per-key = "5/m"
latest = false           # a record replaces the one of its key that still waits

# Handler of the records: a command without a shell, or an address to which each record is sent by POST.
# command = ["./handle", "{key}"]
payload = "arg"          # how a command gets it: "arg", "stdin", "json" (a line with the whole record)
# timeout = "10m"        # of a command, which then gets SIGTERM, and SIGKILL two seconds later
worker = false           # the command stays, gets each payload as a line, and answers it with a line
# worker-timeout = "1m"              # for an answer; without end, if it is not set
# worker-keys = "sticky"             # a key always has the same worker: "sticky", "any"
# Variables of this environment that the command gets; "*" is all of them.
env = ["PATH", "HOME", "LANG", "TZ"]
# http = "http://127.0.0.1:8080/orders"
http-timeout = "30s"
# How many at a time: one per physical core, or 100 with http. Also "200%", "+2", "-2", and 0 for as many as possible.
# jobs = 4

# Up to so many records of a key at once, one after another of them: the command gets their payloads as lines on
# its standard input, the service as the lines of one request. The first waits so long for others.
# batch = 100
# linger = "5ms"

# Failures: a nonzero exit status, a signal, no answer, or one that is not 2xx.
attempts = 10            # 0: without end
backoff = "1s"           # after the first failure; doubles with each further one
max-backoff = "1m"
on-fail = "stop"         # "dead-letter", "skip", "stop-key", "stop"
# Action for records that are refused for good (3xx, 4xx except 408, 425 and 429; exit status 65): by default that of
# on-fail, at once.
# on-refused = "dead-letter"
# dead-letters = "file:dead.ndjson"    # or "journal:PATH", or "kafka://HOST:PORT/TOPIC"

# Where what comes of each record is appended, with its key.
# output = "journal:bills.journal"     # or "kafka://HOST:PORT/TOPIC"
exactly-once = false     # from topic to topic, by transactions

commit-interval = "1s"
commit-batch-size = 10000
max-in-flight = 4096     # maximum number of records in flight per partition, and their size
max-in-flight-bytes = 16777216
shutdown-timeout = "30s" # time for running handlers at the end; the last 5 s after SIGTERM

# /healthz, /readyz, /metrics and /lag; with a token in a file of its owner also /pause, /resume, /retry and /paused.
# listen = "127.0.0.1:9100"
listen-insecure = false  # true, if it is another address than loopback
# listen-token-file = "listen.token"
stall-timeout = "1m"     # time without progress after which a partition is unhealthy
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fuzz target: a configuration that is read is TOML, and a key that is not known is refused by its name.
    fn settings_of(input: &[u8]) {
        let Ok(text) = std::str::from_utf8(input) else { return };
        // A byte order mark counts only at the begin.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match file::parse::<ConsumeSettings>(text, RENAMED) {
            Ok(_) => {
                assert!(toml::from_str::<toml::Table>(text).is_ok());
                let wrong = format!("zz_unknown = 1\n{text}");
                let refused =
                    file::parse::<ConsumeSettings>(&wrong, RENAMED).expect_err("an unknown key");
                assert!(refused.to_string().contains("zz_unknown"), "{refused}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn mutated_files_are_read_or_refused() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/consume_config");
        keylane_testkit::fuzz::run(folder, settings_of);
    }

    #[test]
    fn the_example_is_read_and_changes_nothing() {
        let example: ConsumeSettings = toml::from_str(EXAMPLE).unwrap();
        let given = ConsumeSettings {
            source: Some("journal:x".to_owned()),
            group: Some("g".to_owned()),
            command: Some(vec!["true".to_owned()]),
            ..ConsumeSettings::default()
        };
        let plan = |settings| {
            let plan = format!("{:?}", ConsumePlan::new(settings).unwrap());
            // Its rules are in a map, which has no order.
            let mut words: Vec<String> =
                plan.split([' ', ',', '{', '}']).map(String::from).collect();
            words.sort_unstable();
            words
        };
        assert_eq!(plan(given.clone().or(example)), plan(given));
    }

    #[test]
    fn the_example_has_every_setting() {
        let uncommented: String = EXAMPLE
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(set) if set.contains(" = ") => format!("{set}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let all: ConsumeSettings = toml::from_str(&uncommented).unwrap();
        let shown = format!("{all:?}");
        assert!(!shown.contains("None"), "{shown}");
    }

    #[test]
    fn lines_are_found_by_their_key() {
        let text = "# jobs = 1\n[x]\n jobs =2\njobs-more = 3\n";
        assert_eq!(line_of(text, "jobs"), Some(3));
        assert_eq!(line_of(text, "no"), None);
        assert_eq!(line_of("jobs = 1\nmost-records = 0\n", "max-in-flight"), Some(2));
    }

    /// A value of this key.
    fn value(key: &str) -> &'static str {
        match key {
            "member" | "group-instance-id" => "\"billing-1\"",
            "commit-after" | "commit-batch-size" => "7",
            _ if key.starts_with("most") || key.starts_with("max-in-flight") => "7",
            _ => "\"7s\"",
        }
    }

    fn parsed(
        keys: &[&str],
    ) -> Result<(ConsumeSettings, Vec<file::OldKey>), file::ConfigReadError> {
        let lines = keys.iter().map(|key| format!("{key} = {}\n", value(key)));
        file::parse(&lines.collect::<String>(), RENAMED)
    }

    #[test]
    fn each_old_key_means_the_new_one_and_gives_a_warning() {
        for &name in renamed::CONSUME {
            let (old, new) = (parsed(&[name.old]).unwrap(), parsed(&[name.new]).unwrap());
            assert_eq!(old.0, new.0);
            assert_ne!(old.0, ConsumeSettings::default());
            assert_eq!((old.1, new.1), (vec![file::OldKey { line: 1, name }], vec![]));
        }
    }

    #[test]
    fn both_names_of_a_key_are_an_error_that_has_both() {
        for renamed::RenamedSetting { old, new } in renamed::CONSUME {
            for keys in [[old, new], [new, old]] {
                let error = parsed(&keys.map(|key| *key)).unwrap_err().to_string();
                assert!(error.contains(&format!("`{old}`")), "{error}");
                assert!(error.contains(&format!("`{new}`")), "{error}");
            }
        }
    }
}
