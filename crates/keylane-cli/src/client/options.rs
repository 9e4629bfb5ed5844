//! Address of the server, and the token for it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use reqwest::Url;
use reqwest::header::HeaderValue;

/// Default address of `keylane serve`.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7420";

/// Options of every client command.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Address of the server; by default that in KEYLANE_SERVER, else http://127.0.0.1:7420.
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// File with the token in its first line; by default the token is in KEYLANE_TOKEN, if the
    /// server needs one.
    // There is no option for the token itself: command lines are visible to all users of a machine.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Below the help of each of these commands.
pub(crate) const AFTER_HELP: &str = "\
Exit code: 0; 1 if a job that was followed has failed; 3 if it was cancelled; 4 if the server refused; \
5 if it was not reached; 6 if the time to wait was over first; 255 for wrong usage or input; 128 and the \
signal's number if a signal ended it.

The token for a server that wants one is in KEYLANE_TOKEN, or in a file: --token-file.";

impl ServerArgs {
    /// The address, without a slash at the end of its path.
    pub(super) fn address(&self) -> anyhow::Result<Url> {
        let text = match &self.server {
            Some(server) => server.clone(),
            None => variable("KEYLANE_SERVER")?.unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
        };
        address(&text)
    }

    /// Authorization header, marked as sensitive so that errors and logs do not show it.
    pub(super) fn token(&self) -> anyhow::Result<Option<HeaderValue>> {
        let token = match &self.token_file {
            Some(path) => Some(first_line(path)?),
            None => variable("KEYLANE_TOKEN")?,
        };
        token.map(|token| bearer(token.trim())).transpose()
    }
}

fn address(text: &str) -> anyhow::Result<Url> {
    let remedy = "write something like http://127.0.0.1:7420";
    let Ok(mut url) = Url::parse(text) else { bail!("`{text}` is no address; {remedy}") };
    ensure!(
        matches!(url.scheme(), "http" | "https") && url.has_host(),
        "`{text}` is not the address of a server; {remedy}"
    );
    ensure!(
        url.username().is_empty() && url.password().is_none(),
        "a server wants a token, not a name and a password; give it with --token-file"
    );
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// A variable of the environment; none if it is empty.
fn variable(name: &str) -> anyhow::Result<Option<String>> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let value = value.into_string().ok().with_context(|| format!("{name} is no text"))?;
    Ok(Some(value).filter(|value| !value.is_empty()))
}

fn first_line(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the token in {}", path.display()))?;
    let line = text.lines().next().unwrap_or_default().trim().to_owned();
    ensure!(!line.is_empty(), "there is no token in the first line of {}", path.display());
    Ok(line)
}

fn bearer(token: &str) -> anyhow::Result<HeaderValue> {
    // The error would quote the token.
    let value = HeaderValue::from_str(&format!("Bearer {token}")).ok();
    let mut value =
        value.context("the token has characters that no token has; is it the right file?")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_path_and_nothing_behind_it() {
        let of = |text: &str| address(text).map(String::from);
        assert_eq!(of("http://localhost:7420/").unwrap(), "http://localhost:7420/");
        assert_eq!(
            of("https://tasks.example/keylane/?a=b#c").unwrap(),
            "https://tasks.example/keylane"
        );
        for wrong in ["", "localhost:7420", "127.0.0.1:7420", "ftp://a/", "http://a:b@c/"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_not_in_what_is_said_of_it() {
        let header = bearer("secret-of-mine").unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer secret-of-mine");
        assert!(!format!("{header:?}").contains("secret"));
        let error = bearer("secret\u{7f}").unwrap_err();
        assert!(!format!("{error:?}").contains("secret"));
    }
}
