//! Passwords from a file of libpq's format: lines of `host:port:database:user:password`, each field possibly `*`.

use std::fs;
use std::path::Path;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Returns the password of the first line that is for this database. Of several hosts, the first one that has a line decides.
///
/// # Errors
/// Returns the reason, as a sentence, if the file cannot be read, or other users may read it.
pub(super) fn find(
    path: &Path,
    config: &Config,
    hosts: &[(&Host, u16)],
) -> Result<Option<String>, String> {
    let shown = path.display();
    let cannot = |error| format!("the password file {shown} cannot be read: {error}");
    let text = fs::read_to_string(path).map_err(cannot)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(path).map_err(cannot)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!("other users may read {shown}; run `chmod 600 {shown}`"));
        }
    }
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let lines = || text.lines().filter(|line| !line.starts_with('#'));
    Ok(hosts.iter().find_map(|(host, port)| {
        let host = match host {
            Host::Tcp(name) => name,
            Host::Unix(_) => "localhost",
        };
        let wanted = [host, &port.to_string(), database, user];
        lines().find_map(|line| password(line, &wanted))
    }))
}

/// Returns the password of a line if it is for these host, port, database and user.
fn password(line: &str, wanted: &[&str; 4]) -> Option<String> {
    let mut fields = fields(line);
    let password = fields.get_mut(4).map(std::mem::take)?;
    let fits = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
    fits.then_some(password)
}

/// Splits a line at its first four colons. A backslash precedes a colon or a backslash that belongs to a field.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().expect("there is a first one").extend(characters.next()),
            other => fields.last_mut().expect("there is a first one").push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: [&str; 4] = ["db", "5432", "jobs", "ann"];

    #[test]
    fn a_line_fits_by_its_four_fields() {
        for (line, found) in [
            ("db:5432:jobs:ann:secret", Some("secret")),
            ("*:*:*:ann:a:b", Some("a:b")),
            (r"db:5432:jobs:ann:a\:b\\", Some(r"a:b\")),
            ("db:5433:jobs:ann:secret", None),
            ("db:5432:jobs", None),
            ("", None),
        ] {
            assert_eq!(password(line, &WANTED).as_deref(), found, "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        fs::write(&path, "# comment\n*:*:*:*:secret\n").unwrap();
        let config: Config = "postgres://ann@db/jobs".parse().unwrap();
        let [first, second] = ["db1", "db2"].map(|name| Host::Tcp(name.into()));
        let hosts = [(&first, 5432), (&second, 5433)];
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_mode(0o644);
        fs::set_permissions(&path, permissions.clone()).unwrap();
        assert!(find(&path, &config, &hosts).unwrap_err().contains("chmod 600"));
        permissions.set_mode(0o600);
        fs::set_permissions(&path, permissions).unwrap();
        assert_eq!(find(&path, &config, &hosts), Ok(Some("secret".into())));
        fs::write(&path, "db2:5433:*:*:second\ndb1:5433:*:*:other\n").unwrap();
        assert_eq!(find(&path, &config, &hosts), Ok(Some("second".into())));
    }
}
