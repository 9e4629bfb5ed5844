//! Old names of keys in the configuration of `keylane serve`.

use crate::renamed::RenamedSetting;
use crate::renamed::file::RenamedKeys;

const SERVER: &[RenamedSetting] = &[
    RenamedSetting::new("keep", "retention"),
    RenamedSetting::new("keep_audit", "audit_retention"),
    RenamedSetting::new("most_audit", "max_audit_entries"),
    RenamedSetting::new("most_connections", "max_connections"),
    RenamedSetting::new("most_websockets", "max_websockets"),
    RenamedSetting::new("most_body", "max_body_bytes"),
    RenamedSetting::new("most_payload", "max_payload_bytes"),
    RenamedSetting::new("most_subtasks", "max_subtasks_per_job"),
    RenamedSetting::new("most_waiting", "max_waiting_subtasks"),
    RenamedSetting::new("most_store", "max_store_bytes"),
];

const HANDLER: &[RenamedSetting] =
    &[RenamedSetting::new("tasks_per_worker", "max_tasks_per_worker")];

/// Renamed keys.
pub(super) const TABLES: &[RenamedKeys] = &[
    RenamedKeys { path: &["server"], keys: SERVER },
    RenamedKeys {
        path: &["kinds", "*"],
        keys: &[RenamedSetting::new("log_bytes", "max_log_bytes")],
    },
    RenamedKeys { path: &["kinds", "*"], keys: HANDLER },
    RenamedKeys { path: &["kinds", "*", "split"], keys: HANDLER },
    RenamedKeys { path: &["kinds", "*", "fan_in"], keys: HANDLER },
];

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::*;
    use crate::renamed::file::{self, OldKey};

    /// A file that sets these names of a key in a table at this path.
    fn text(path: &[&str], names: &[&str]) -> String {
        let table = path.join(".").replace('*', "resize");
        let set = names.iter().map(|name| format!("{name} = {}\n", value(name)));
        format!("[{table}]\n{}", set.collect::<String>())
    }

    fn value(name: &str) -> &'static str {
        match name {
            "keep" | "keep_audit" | "retention" | "audit_retention" => "\"12d\"",
            "most_body" | "most_payload" | "most_store" | "log_bytes" => "\"64K\"",
            "max_body_bytes" | "max_payload_bytes" | "max_store_bytes" | "max_log_bytes" => {
                "\"64K\""
            }
            _ => "7",
        }
    }

    fn all() -> impl Iterator<Item = (&'static [&'static str], RenamedSetting)> {
        TABLES.iter().flat_map(|table| table.keys.iter().map(|key| (table.path, *key)))
    }

    #[test]
    fn each_old_key_means_the_new_one_and_gives_a_warning() {
        for (path, name) in all() {
            let read = |key| file::parse::<Config>(&text(path, &[key]), TABLES).unwrap();
            let (old, new) = (read(name.old), read(name.new));
            assert_eq!(format!("{:?}", old.0), format!("{:?}", new.0));
            assert_ne!(format!("{:?}", old.0), format!("{:?}", Config::default()));
            assert_eq!(old.1, [OldKey { line: 2, name }]);
            assert_eq!(new.1, []);
        }
    }

    #[test]
    fn both_names_of_a_key_are_an_error_that_has_both() {
        for (path, RenamedSetting { old, new }) in all() {
            for names in [[old, new], [new, old]] {
                let error = file::parse::<Config>(&text(path, &names), TABLES).unwrap_err();
                let error = error.to_string();
                assert!(error.contains(&format!("`{old}`")), "{error}");
                assert!(error.contains(&format!("`{new}`")), "{error}");
            }
        }
    }
}
