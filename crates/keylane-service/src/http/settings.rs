//! Settings of the HTTP server, and the errors of a start.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::auth::Tokens;
use super::tls::TlsIdentity;

/// Settings of the HTTP server.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Address to listen on. A non-loopback address requires [`tokens`](Self::tokens). Default:
    /// 127.0.0.1, port 7420.
    pub listen: SocketAddr,
    /// Tokens and their roles. Default: none; then every caller has every role.
    pub tokens: Tokens,
    /// Certificate and key. Default: none, for plain HTTP or a proxy that terminates TLS.
    pub tls: Option<TlsIdentity>,
    /// Accepted host names, in addition to IP addresses and `localhost`. Default: none.
    pub hosts: Vec<String>,
    /// Whether all requests that change state are refused. Default: no.
    pub read_only: bool,
    /// Name of the environment shown on the dashboard, such as `production`. Default: none.
    pub environment: Option<String>,
    /// Maximum number of connections; further ones wait. A reserve of a 16th of it, at most 64, is
    /// added for probes and operators. Default: 4096.
    pub max_connections: usize,
    /// Maximum number of WebSockets. Default: 2048.
    pub max_websockets: usize,
    /// Maximum number of event streams. Default: 1024.
    pub max_event_streams: usize,
    /// Maximum number of connections per client address. Default: no limit, because all clients may
    /// share one proxy.
    pub max_connections_per_client: Option<usize>,
    /// Timeout for a request's head, from the connection's start or the previous answer. Default:
    /// 10 s.
    pub head_timeout: Duration,
    /// Timeout for a pause within a request's body, which may be sent record by record; and for a
    /// client that reads nothing, or almost nothing, of an answer or a WebSocket. Default: 2 min.
    pub body_timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            tokens: Tokens::default(),
            tls: None,
            hosts: Vec::new(),
            read_only: false,
            environment: None,
            max_connections: 4096,
            max_websockets: 2048,
            max_event_streams: 1024,
            max_connections_per_client: None,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(120),
        }
    }
}

impl HttpSettings {
    /// Checks that the settings restrict a publicly reachable server to callers with tokens.
    ///
    /// # Errors
    /// If the address is reachable by others and there are no tokens.
    pub fn check(&self) -> Result<(), ServeError> {
        if !self.listen.ip().is_loopback() && self.tokens.is_empty() {
            return Err(ServeError::Open(self.listen));
        }
        Ok(())
    }
}

/// What helps against an error of the bind.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ", which another server uses; stop that one, or choose another port, such as --listen 127.0.0.1:7421"
        }
        io::ErrorKind::PermissionDenied => ", which needs privileges; choose a port above 1023",
        io::ErrorKind::AddrNotAvailable => ", which is no address of this machine",
        _ => "",
    }
}

/// Error of starting or reloading a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is reachable by others, and there are no tokens.
    #[error(
        "the address {0} is reachable by others and no tokens are set; add tokens, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// A reload would switch encryption on or off.
    #[error(
        "tls_certificates: encryption cannot be switched on or off while the server listens; start it again"
    )]
    Encryption,
    /// The address cannot be bound.
    #[error("cannot listen on {listen}{}", remedy(source))]
    Listen {
        /// Address.
        listen: SocketAddr,
        /// Cause.
        source: io::Error,
    },
}
