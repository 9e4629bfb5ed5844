//! `[webhooks]`: secrets that sign webhooks, and networks to which they may go although they are not public.

use std::path::PathBuf;

use anyhow::{Context, bail};
use keylane_service::{AllowedNetworks, WebhookSecrets, WebhookSettings};
use serde::Deserialize;

/// Largest secret file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WebhookTable {
    pub(super) secret_file: Option<PathBuf>,
    allow_networks: Vec<String>,
}

impl WebhookTable {
    /// Settings of webhooks, if there are secrets.
    ///
    /// # Errors
    /// If the file cannot be read, a line of it is no secret, or a network is none.
    pub(super) fn settings(&self) -> anyhow::Result<Option<WebhookSettings>> {
        let Some(path) = &self.secret_file else {
            if !self.allow_networks.is_empty() {
                bail!("webhooks: `allow_networks` needs `secret_file`");
            }
            return Ok(None);
        };
        let in_file = || format!("webhooks: `secret_file` {}", path.display());
        let size = std::fs::metadata(path).with_context(in_file)?.len();
        if size > MAX_FILE_BYTES {
            bail!("{}: it has {size} bytes, and {MAX_FILE_BYTES} are the most", in_file());
        }
        let text = std::fs::read_to_string(path).with_context(in_file)?;
        let secrets = WebhookSecrets::parse(&text).with_context(in_file)?;
        let networks = self.allow_networks.iter().map(String::as_str);
        let allow = AllowedNetworks::parse(networks).context("webhooks: `allow_networks`")?;
        Ok(Some(WebhookSettings::new(secrets, allow)?))
    }
}
