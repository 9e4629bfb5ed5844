//! Webhooks: a job with one sends a signed request to its address when it has ended.
//!
//! # Protocol
//!
//! 1. **A delivery is written with the end of its job**: in one transaction, so there is one for each end of such a job, and
//!    none for an end that a crash undoes.
//! 2. **It is sent after that commit**, and its record is removed when the receiver has answered with success. A crash
//!    between the answer and the removal repeats it: a receiver gets each delivery at least once, with the same id.
//! 3. **A failed attempt is written** with the time of the next one (`delivery.rs`), so that a restart neither hurries nor
//!    forgets it. That time is kept on the steady clock: a step of the wall clock changes no delay.
//! 4. **After the last attempt** the delivery is kept as failed, until an operator retries or removes it, or it is as old as
//!    finished jobs may be.
//! 5. **Few requests at a time**, and fewer to one host: a receiver that hangs delays only its own deliveries.
//! 6. **The number of deliveries is bounded.** At the bound a job ends without one, which is logged and counted.
//!
//! A job that is retried after its end ends a second time, and so has a second delivery.

mod addresses;
mod delivery;
mod delivery_runner;
mod event;
mod secrets;
mod sender;
mod table;
mod webhook_control;

use std::sync::Arc;

use sender::HttpSender;

use crate::outgoing_http;
use crate::request_error::RequestError;

pub use addresses::{AllowedNetworks, InvalidNetwork};
pub(in crate::engine) use delivery::{Delivery, DeliveryId, DeliveryRecord};
pub(in crate::engine) use delivery_runner::DeliveryRunner;
pub use secrets::{InvalidSecret, WebhookSecrets};
pub(crate) use sender::{MAX_URL_BYTES, WebhookSender, check_address};
#[cfg(test)]
pub(crate) use sender::{SendFailure, WebhookRequest};
pub(in crate::engine) use table::DeliveryTable;
pub(in crate::engine) use webhook_control::WebhookDependencies;
pub(crate) use webhook_control::Webhooks;

/// Returns the error for a job with a webhook, where none is sent.
pub(in crate::engine) fn not_configured() -> RequestError {
    let why = "this server sends no webhooks: set `webhooks.secret_file` in its configuration";
    RequestError::Conflict(why.to_owned())
}

/// Settings of webhooks: the secrets that sign them, and the client that sends them.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    secrets: WebhookSecrets,
    sender: Arc<dyn WebhookSender>,
}

/// The client that sends webhooks cannot be made, because the system has no certificates of authorities, for example.
#[derive(Debug, thiserror::Error)]
#[error(
    "webhooks cannot be sent: {why}; the certificates of authorities are in the package `ca-certificates`, or where the \
     variable SSL_CERT_FILE says"
)]
pub struct NoWebhookClient {
    why: String,
}

impl WebhookSettings {
    /// Creates settings with these secrets. `allow` are the networks to which requests may go although they are not public.
    ///
    /// # Errors
    /// Returns an error if the system has no certificates of authorities.
    pub fn new(secrets: WebhookSecrets, allow: AllowedNetworks) -> Result<Self, NoWebhookClient> {
        let failed = |error| NoWebhookClient { why: outgoing_http::text_of(error) };
        let sender = HttpSender::new(allow).map_err(failed)?;
        Ok(WebhookSettings { secrets, sender: Arc::new(sender) })
    }

    /// Creates settings with a simulated receiver.
    #[cfg(test)]
    pub(crate) fn simulated(secrets: WebhookSecrets, sender: Arc<dyn WebhookSender>) -> Self {
        WebhookSettings { secrets, sender }
    }

    /// Checks the form of an address, as a submission does. A name is resolved only when a webhook is sent.
    ///
    /// # Errors
    /// Returns the reason why it is no address of a webhook.
    pub fn check_address(text: &str) -> Result<(), String> {
        check_address(text).map(drop)
    }
}
