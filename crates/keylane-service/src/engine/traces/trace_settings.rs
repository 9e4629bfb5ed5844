//! Settings of spans: where they are sent, and of which jobs.

use std::fmt;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Settings of spans.
#[derive(Clone)]
pub struct TraceSettings {
    /// Address of the traces: that of the collector with `/v1/traces`.
    pub(super) url: Url,
    /// Part of the jobs without a `traceparent` that are sampled.
    pub(super) ratio: f64,
    pub(super) headers: HeaderMap,
    /// `service.name` of the spans.
    pub(super) service: String,
}

/// Reason why settings of spans are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTraceSettings {
    /// The endpoint is no address of a collector.
    #[error("`{endpoint}` is no address of a collector, such as http://127.0.0.1:4318")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
    },
    /// The ratio is no part of all jobs.
    #[error("the ratio of sampled jobs is {ratio}, and must be from 0 to 1")]
    Ratio {
        /// The ratio.
        ratio: f64,
    },
    /// A line is no header.
    #[error("line {line} is no header, such as `authorization: Bearer abc`")]
    Header {
        /// Number of the line, from 1.
        line: usize,
    },
}

impl TraceSettings {
    /// Settings for a collector that takes OTLP over HTTP at `endpoint`, such as `http://127.0.0.1:4318`. All jobs are
    /// sampled, and the service has the name `keylane`.
    ///
    /// # Errors
    /// If the endpoint is no HTTP address.
    pub fn new(endpoint: &str) -> Result<Self, InvalidTraceSettings> {
        let invalid = || InvalidTraceSettings::Endpoint { endpoint: endpoint.to_owned() };
        let mut url = Url::parse(endpoint).map_err(|_| invalid())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid());
        }
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(TraceSettings { url, ratio: 1.0, headers: HeaderMap::new(), service: "keylane".into() })
    }

    /// Sets the part of the jobs without a `traceparent` that are sampled.
    ///
    /// # Errors
    /// If it is not from 0 to 1.
    pub fn ratio(self, ratio: f64) -> Result<Self, InvalidTraceSettings> {
        match (0.0..=1.0).contains(&ratio) {
            true => Ok(TraceSettings { ratio, ..self }),
            false => Err(InvalidTraceSettings::Ratio { ratio }),
        }
    }

    /// Sets the name of the service in the spans.
    #[must_use]
    pub fn service_name(self, service: impl Into<String>) -> Self {
        TraceSettings { service: service.into(), ..self }
    }

    /// Adds headers to each request, one on each line of `text`: `name: value`.
    ///
    /// # Errors
    /// If a line is no header.
    pub fn headers(mut self, text: &str) -> Result<Self, InvalidTraceSettings> {
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let parse = || {
                let (name, value) = text.split_once(':')?;
                let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
                let mut value = HeaderValue::from_str(value.trim()).ok()?;
                value.set_sensitive(true);
                Some((name, value))
            };
            let (name, value) = parse().ok_or(InvalidTraceSettings::Header { line })?;
            self.headers.append(name, value);
        }
        Ok(self)
    }
}

impl fmt::Debug for TraceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceSettings { url, ratio, headers, service } = self;
        let mut all = f.debug_struct("TraceSettings");
        all.field("host", &url.host_str()).field("ratio", ratio).field("service", service);
        all.field("headers", &headers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_gets_the_path_of_traces() {
        let url = |endpoint| TraceSettings::new(endpoint).unwrap().url.to_string();
        assert_eq!(url("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(url("https://c.example/otlp/"), "https://c.example/otlp/v1/traces");
        for wrong in ["collector:4317", "grpc://collector", ""] {
            assert!(TraceSettings::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_are_checked_and_do_not_show_secrets() {
        let settings = || TraceSettings::new("http://user:secret@c.example").unwrap();
        assert!(settings().ratio(1.5).is_err() && settings().ratio(f64::NAN).is_err());
        let with = settings().headers("authorization: Bearer hidden\n\nx-team: a\n").unwrap();
        assert_eq!(with.headers.len(), 2);
        let shown = format!("{with:?}");
        assert!(!shown.contains("hidden") && !shown.contains("secret"), "{shown}");
        let wrong = settings().headers("x: 1\nno header").unwrap_err();
        assert_eq!(wrong, InvalidTraceSettings::Header { line: 2 });
    }
}
