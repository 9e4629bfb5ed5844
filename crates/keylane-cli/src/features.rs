//! Says which parts this build of `keylane` has, and how to get a part that it lacks.

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
            "tenants",
            "schedules",
            "webhooks",
            "audit",
            "backup",
            "top",
        ],
    },
];

/// All Cargo features of this build.
pub(crate) fn names() -> Vec<&'static str> {
    let further = [
        ("kafka", cfg!(feature = "kafka")),
        ("kafka-tls", cfg!(feature = "kafka-tls")),
        ("postgres", cfg!(feature = "postgres")),
    ];
    let all = FEATURES.iter().map(|it| (it.name, it.is_built)).chain(further);
    all.filter_map(|(name, is_built)| is_built.then_some(name)).collect()
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
        "`keylane {word}` is not part of this build; build it with the feature `{}`, or with all of the \
         default features: cargo build --release --bin keylane",
        feature.name
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

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
