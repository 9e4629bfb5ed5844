//! Says which parts this build of `keylane` has, and how to get a part that it lacks.

use std::sync::LazyLock;

#[cfg(feature = "consume")]
use clap::Arg;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A Cargo feature of this crate, and the subcommands that it adds.
struct Feature {
    name: &'static str,
    is_built: bool,
    subcommands: &'static [&'static str],
}

const FEATURES: [Feature; 2] = [
    Feature {
        name: "consume",
        is_built: cfg!(feature = "consume"),
        subcommands: &["consume", "produce", "lag", "config", "verify"],
    },
    Feature {
        name: "service",
        is_built: cfg!(feature = "service"),
        subcommands: &[
            "serve",
            "store",
            "submit",
            "status",
            "watch",
            "results",
            "logs",
            "cancel",
            "pause",
            "resume",
            "retry",
            "keys",
            "kinds",
            "workers",
            "nodes",
            "tenants",
            "schedules",
            "webhooks",
            "audit",
            "backup",
            "top",
        ],
    },
];

/// Features without a subcommand of their own, and whether this build has them.
const FURTHER: [(&str, bool); 3] = [
    ("kafka", cfg!(feature = "kafka")),
    ("kafka-tls", cfg!(feature = "kafka-tls")),
    ("postgres", cfg!(feature = "postgres")),
];

/// Features that are built only on request.
const ON_REQUEST: [&str; 2] = ["kafka", "kafka-tls"];

/// All Cargo features, and whether this build has them.
fn all() -> impl Iterator<Item = (&'static str, bool)> {
    FEATURES.iter().map(|it| (it.name, it.is_built)).chain(FURTHER)
}

/// All Cargo features of this build.
pub(crate) fn names() -> Vec<&'static str> {
    all().filter_map(|(name, is_built)| is_built.then_some(name)).collect()
}

/// Returns the command that builds what this build has, the default features, and `feature`.
pub(crate) fn command_with(feature: &str) -> String {
    let has = |name: &str| names().contains(&name);
    // `kafka-tls` includes `kafka`.
    let is_included = |name: &str| name == "kafka" && (feature == "kafka-tls" || has("kafka-tls"));
    let named = ON_REQUEST.into_iter().filter(|&name| name == feature || has(name));
    let named: Vec<_> = named.filter(|name| !is_included(name)).collect();
    match named.is_empty() {
        true => "cargo build --release -p keylane-cli".to_owned(),
        false => format!("cargo build --release -p keylane-cli --features {}", named.join(",")),
    }
}

/// Returns the text of `--version`: the version, the revision if it is known, and the features.
pub(crate) fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let line = |title: &str, names: Vec<&str>| match names.is_empty() {
            true => String::new(),
            false => format!("\n{title}: {}", names.join(", ")),
        };
        let missing = all().filter_map(|(name, is_built)| (!is_built).then_some(name)).collect();
        let revision = Some(REVISION).filter(|it| !it.is_empty()).into_iter().collect();
        format!(
            "{}{}{}{}",
            env!("CARGO_PKG_VERSION"),
            line("revision", revision),
            line("features", names()),
            line("not in this build", missing)
        )
    });
    &TEXT
}

/// Options of `consume`, `produce` and `lag` that have no effect without Kafka.
#[cfg(feature = "consume")]
const FOR_KAFKA: [&str; 9] = [
    "client",
    "client_config",
    "protocol",
    "group_instance_id",
    "start",
    "out_of_range",
    "foreign_progress",
    "offset_map",
    "exactly_once",
];

/// Marks an option that has no effect without Kafka, in the help of a build without it.
#[cfg(feature = "consume")]
pub(crate) fn marked(option: Arg) -> Arg {
    if cfg!(feature = "kafka") || !FOR_KAFKA.contains(&option.get_id().as_str()) {
        return option;
    }
    let mark = |help: &clap::builder::StyledStr| format!("{help} (not in this build)");
    let (short, long) = (option.get_help().map(mark), option.get_long_help().map(mark));
    let option = match short {
        Some(help) => option.help(help),
        None => option,
    };
    match long {
        Some(help) => option.long_help(help),
        None => option,
    }
}

/// Revision of the source; empty unless the environment of the build has it in `KEYLANE_REVISION`.
pub(crate) const REVISION: &str = match option_env!("KEYLANE_REVISION") {
    Some(revision) => revision,
    None => "",
};

/// The error for a subcommand that exists in other builds only.
pub(crate) fn missing(refusal: &clap::Error) -> Option<String> {
    if refusal.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = refusal.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let feature = FEATURES.iter().find(|it| !it.is_built && it.subcommands.contains(&&**word))?;
    Some(format!(
        "`keylane {word}` is not part of this build; build it with the default features, which have \
         `{}`: {}",
        feature.name,
        command_with(feature.name)
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_version_lists_each_feature_once() {
        let manifest: &str = include_str!("../Cargo.toml");
        let table = manifest.split_once("[features]\n").unwrap().1.split_once("\n[").unwrap().0;
        let listed = table.lines().filter(|line| line.starts_with(char::is_alphabetic));
        let mut declared: Vec<_> = listed.filter_map(|line| line.split(" = ").next()).collect();
        declared.retain(|&name| name != "default");
        let mut known: Vec<_> = all().map(|(name, _)| name).collect();
        declared.sort_unstable();
        known.sort_unstable();
        assert_eq!(declared, known);

        let text = Cli::command().render_long_version();
        let first = format!("keylane {}", env!("CARGO_PKG_VERSION"));
        assert_eq!(text.lines().next(), Some(&*first));
        let of = |title: &str| text.lines().find_map(|line| line.strip_prefix(title)).unwrap_or("");
        let (built, others) = (of("features: "), of("not in this build: "));
        for (name, is_built) in all() {
            let has = |line: &str| line.split(", ").any(|listed| listed == name);
            assert_eq!((has(built), has(others)), (is_built, !is_built), "{name}: {text}");
        }
        assert_eq!(Cli::command().render_version().trim_end(), first);
    }

    #[test]
    fn the_command_for_a_feature_keeps_the_others() {
        let default = manifest_default();
        for (name, _) in all() {
            let command = command_with(name);
            assert!(command.starts_with("cargo build --release -p keylane-cli"));
            let named = command.split_once(" --features ").map_or("", |(_, named)| named);
            let named: Vec<_> = named.split(',').collect();
            for wanted in names().into_iter().chain([name]) {
                let is_there = default.contains(&wanted)
                    || named.contains(&wanted)
                    || wanted == "kafka" && named.contains(&"kafka-tls");
                assert!(is_there, "{wanted} is not in {command}");
            }
        }
    }

    /// Default features by the manifest.
    fn manifest_default() -> Vec<&'static str> {
        let manifest: &str = include_str!("../Cargo.toml");
        let list = manifest.split_once("default = [").unwrap().1.split_once(']').unwrap().0;
        list.split(", ").map(|name| name.trim_matches('"')).collect()
    }

    #[test]
    #[cfg(feature = "consume")]
    fn options_for_kafka_are_marked_exactly_where_it_is_missing() {
        let command = Cli::command();
        for (name, count) in [("consume", FOR_KAFKA.len()), ("produce", 1), ("lag", 1)] {
            let options = command.find_subcommand(name).unwrap().get_arguments();
            let found = options.filter(|option| FOR_KAFKA.contains(&option.get_id().as_str()));
            let found: Vec<_> = found.collect();
            assert_eq!(found.len(), count, "{name}: {found:?}");
            for help in found.iter().flat_map(|it| [it.get_help(), it.get_long_help()]).flatten() {
                let is_marked = help.to_string().contains("(not in this build)");
                assert_eq!(is_marked, !cfg!(feature = "kafka"), "{name}: {help}");
            }
        }
    }

    #[test]
    fn every_subcommand_of_a_feature_exists_exactly_where_the_feature_is_built() {
        let command = Cli::command();
        let has = |word: &&str| command.find_subcommand(word).is_some();
        for feature in FEATURES {
            assert!(feature.subcommands.iter().all(|word| has(word) == feature.is_built));
        }
        let of_features: usize =
            FEATURES.iter().filter(|it| it.is_built).map(|it| it.subcommands.len()).sum();
        let always = ["run", "calibrate", "simulate", "completions", "man"];
        assert_eq!(command.get_subcommands().count(), always.len() + of_features);
    }
}
