//! `keylane serve --init`: a configuration file with comments.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail};

use crate::exit::ExitOutcome;

/// The file. Settings behind a `# ` have their default, or are examples.
const TEMPLATE: &str = include_str!("init.toml");

/// Writes the file, unless there is one.
pub(super) fn write(path: &Path) -> anyhow::Result<ExitOutcome> {
    let name = path.display();
    let mut file = match File::create_new(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{name} exists already; give another file: --init FILE")
        }
        created => created.with_context(|| format!("cannot create {name}"))?,
    };
    let written = file.write_all(TEMPLATE.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Half a file would be refused as a configuration, and by the next --init.
        let _ = std::fs::remove_file(path);
        return Err(error).with_context(|| format!("cannot write {name}"));
    }
    println!("keylane: wrote {name}; next: keylane serve --config {name}");
    Ok(ExitOutcome::Finished { failed: 0 })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::config::Config;
    use super::TEMPLATE;
    use crate::renamed::file;

    /// The template with its commented settings in effect.
    fn with_all() -> String {
        let is_setting = |line: &str| line.contains(" = ") || line.starts_with('[');
        let lines = TEMPLATE.lines().map(|line| match line.strip_prefix("# ") {
            Some(rest) if is_setting(rest) => rest,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn names(text: &str) -> BTreeSet<String> {
        let value: toml::Table = toml::from_str(text).unwrap();
        let server = value["server"].as_table().unwrap().keys();
        let kinds = value["kinds"].as_table().unwrap().values();
        let of_kinds = kinds.flat_map(|kind| kind.as_table().unwrap().keys());
        let tenants = value["tenants"].as_table().unwrap().values();
        let of_tenants = tenants.flat_map(|tenant| tenant.as_table().unwrap().keys());
        server.chain(of_kinds).chain(of_tenants).cloned().collect()
    }

    #[test]
    fn the_file_is_a_valid_configuration_with_and_without_its_commented_settings() {
        for text in [TEMPLATE.to_owned(), with_all()] {
            let (config, old): (Config, _) =
                file::parse(&text, super::super::old_names::TABLES).unwrap();
            assert!(old.is_empty());
            config.kinds().unwrap();
        }
    }

    #[test]
    fn the_file_has_every_setting_that_the_documentation_has() {
        let page = include_str!("../../../../docs/serve/configuration.md");
        let block =
            page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let documented = block.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
        let documented = documented.filter(|line| !line.starts_with("For `"));
        let missing: Vec<_> = names(&documented.collect::<Vec<_>>().join("\n"))
            .difference(&names(&with_all()))
            .cloned()
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
