//! Secrets that sign webhooks, as the [Standard Webhooks](https://www.standardwebhooks.com) specification defines it.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

/// Prefix of a secret.
const PREFIX: &str = "whsec_";

/// Sizes of a secret in bytes, as the specification has them.
const SIZES: std::ops::RangeInclusive<usize> = 24..=64;

/// Secrets that sign webhooks. Each signs each request, so that a receiver may know the new one or the old one while they are
/// exchanged.
#[derive(Clone)]
pub struct WebhookSecrets(Vec<hmac::Key>);

/// Text that is no list of secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSecret {
    /// There is no secret.
    #[error("there is no secret; make one with `echo whsec_$(head -c 32 /dev/urandom | base64)`")]
    None,
    /// There are too many secrets.
    #[error("there are {count} secrets, and {} are the most", WebhookSecrets::MAX)]
    TooMany {
        /// Number of secrets.
        count: usize,
    },
    /// A line is no secret. It is not shown, because it may be nearly one.
    #[error(
        "line {line} is no secret: a secret is `whsec_` and the base64 of 24 to 64 random bytes"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
}

impl WebhookSecrets {
    /// Maximum number of secrets.
    pub const MAX: usize = 8;

    /// Parses a text with one secret per line. Empty lines, and lines that begin with `#`, are skipped.
    ///
    /// ```
    /// use keylane_service::WebhookSecrets;
    ///
    /// let text = "# Since May.\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";
    /// assert!(WebhookSecrets::parse(text).is_ok());
    /// assert!(WebhookSecrets::parse("whsec_short").is_err());
    /// ```
    ///
    /// # Errors
    /// Returns an error that names the line, and not its content.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let secret = |(line, text): (usize, &str)| {
            let bytes = text.strip_prefix(PREFIX).and_then(|it| BASE64_STANDARD.decode(it).ok());
            let bytes = bytes.filter(|bytes| SIZES.contains(&bytes.len()));
            let bytes = bytes.ok_or(InvalidSecret::Line { line })?;
            Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        };
        let secrets: Vec<_> = lines.map(secret).collect::<Result<_, _>>()?;
        match secrets.len() {
            0 => Err(InvalidSecret::None),
            count if count > WebhookSecrets::MAX => Err(InvalidSecret::TooMany { count }),
            _ => Ok(WebhookSecrets(secrets)),
        }
    }

    /// Returns the value of the header `webhook-signature`: a signature per secret.
    pub(super) fn sign(&self, id: &str, timestamp_s: u64, body: &str) -> String {
        let signed = format!("{id}.{timestamp_s}.{body}");
        let signature = |key| {
            let tag = hmac::sign(key, signed.as_bytes());
            format!("v1,{}", BASE64_STANDARD.encode(tag))
        };
        self.0.iter().map(signature).collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Debug for WebhookSecrets {
    /// Writes only the number of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSecrets").field("count", &self.0.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    #[test]
    fn the_signature_is_the_one_of_the_specification() {
        let secrets = WebhookSecrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signature = secrets.sign(id, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_signs() {
        let (one, other) =
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let both = WebhookSecrets::parse(&format!("{one}\n\n # old\n{other}\n")).unwrap();
        let alone = |text: &str| WebhookSecrets::parse(text).unwrap().sign("id", 5, "{}");
        assert_eq!(both.sign("id", 5, "{}"), format!("{} {}", alone(one), alone(other)));
        assert!(!format!("{both:?}").contains("MfKQ"));
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let error = WebhookSecrets::parse(&format!("{good}\nwhsec_c2hvcnQ=")).unwrap_err();
        assert_eq!(error, InvalidSecret::Line { line: 2 });
        assert!(!error.to_string().contains("c2hvcnQ"));
        assert_eq!(WebhookSecrets::parse(&good[6..]).unwrap_err(), InvalidSecret::Line { line: 1 });
        assert_eq!(WebhookSecrets::parse("# none\n").unwrap_err(), InvalidSecret::None);
        let many = format!("{good}\n").repeat(9);
        assert_eq!(WebhookSecrets::parse(&many).unwrap_err(), InvalidSecret::TooMany { count: 9 });
    }
}
