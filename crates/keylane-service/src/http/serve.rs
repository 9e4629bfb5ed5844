//! The server: connections are accepted, bounded, and ended well.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::auth::{Current, Tokens};
use super::events::Events;
use super::places::{OfConnection, Place, Places};
use super::takeover::{self, Slot, Watched};
use super::tls::Tls;
use super::unread::Unread;
use super::{State, router};
use crate::Service;

/// How a server listens, and what it allows.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens. An address beyond loopback needs [`tokens`](Self::tokens). Default: port 7420
    /// of 127.0.0.1.
    pub listen: SocketAddr,
    /// Who may do what. Default: none, and then everybody who reaches it may do everything.
    pub tokens: Tokens,
    /// Encryption. Default: none; a proxy may have it.
    pub tls: Option<Tls>,
    /// Names under which the server is asked, besides addresses and `localhost`. Default: none.
    pub hosts: Vec<String>,
    /// Whether nothing may be changed over the network. Default: no.
    pub read_only: bool,
    /// What the dashboard calls this server, to tell production from a test. Default: nothing.
    pub environment: Option<String>,
    /// How many connections there may be; what comes then waits. A few more, a 16th of these and at most 64, are for
    /// probes and operators. Default: 4096.
    pub most_connections: usize,
    /// How many of them may be WebSockets. Default: 2048.
    pub most_websockets: usize,
    /// How many of them may send events. Default: 1024.
    pub max_event_streams: usize,
    /// How many connections one address may have. Default: any number, for all clients may come through one proxy.
    pub max_connections_per_client: Option<usize>,
    /// How long a client may take to send a request's head, from its connection or the answer before on.
    /// Default: 10 s.
    pub head_timeout: Duration,
    /// How long a client may pause in the middle of a request's body, for somebody may send records as they
    /// are found; and how long it may read nothing, or next to nothing, of what it is sent, over HTTP or a WebSocket.
    /// Default: 2 min.
    pub body_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            tokens: Tokens::default(),
            tls: None,
            hosts: Vec::new(),
            read_only: false,
            environment: None,
            most_connections: 4096,
            most_websockets: 2048,
            max_event_streams: 1024,
            max_connections_per_client: None,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(120),
        }
    }
}

impl Settings {
    /// Whether a server with these would let in others than those who should be.
    ///
    /// # Errors
    /// If the address is open to others and there are no tokens.
    pub fn check(&self) -> Result<(), ServeError> {
        if !self.listen.ip().is_loopback() && self.tokens.is_empty() {
            return Err(ServeError::Open(self.listen));
        }
        Ok(())
    }
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Others could do everything.
    #[error("{0} can be reached by others, so tokens are needed; or listen on 127.0.0.1")]
    Open(SocketAddr),
    /// Encryption cannot begin or end while the server listens.
    #[error(
        "tls_certificates: encryption cannot be switched on or off while the server listens; start it again"
    )]
    Encryption,
    /// The address cannot be had.
    #[error("cannot listen on {listen}")]
    Listen {
        /// Which.
        listen: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// Nothing more is accepted.
    stopping: CancellationToken,
    state: State,
    /// The certificate of connections that are accepted from now on.
    tls: Current<Option<Tls>>,
    connections: TaskTracker,
}

/// How many bytes the system keeps of what a client has yet to read; it takes more when about a third has been read. As
/// many as it likes would be megabytes, and who reads slowly would seem to read nothing for long.
const SEND_BUFFER: u32 = 256 * 1024;

/// How many connections wait to be accepted.
const LISTEN_BACKLOG: u32 = 1024;

fn listener(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // So that a server can follow another at once.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(listen)?;
    socket.listen(LISTEN_BACKLOG)
}

impl Server {
    /// Listens, and serves on the runtime that it is called in.
    ///
    /// # Errors
    /// If the address cannot be had, or is open to others and there are no tokens.
    pub async fn start(service: &Service, settings: Settings) -> Result<Server, ServeError> {
        settings.check()?;
        let listen = settings.listen;
        let failed = |source| ServeError::Listen { listen, source };
        let listener = listener(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let state = State::new(service, settings);
        let (stopping, connections) = (CancellationToken::new(), TaskTracker::new());
        let tls = Current::new(state.settings.tls.clone());
        let accepting = Accepting {
            routes: router(state.clone()),
            tls: tls.clone(),
            settings: Arc::clone(&state.settings),
            stopping: stopping.clone(),
            connections: connections.clone(),
        };
        tokio::spawn(accepting.run(listener));
        Ok(Server { address, stopping, state, tls, connections })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the tokens and the certificate: what is asked from now on needs one of these tokens, and connections from now
    /// on get this certificate. Event streams and WebSockets that began with a token that is gone end; nothing else that is
    /// open does.
    ///
    /// # Errors
    /// If the address is open to others and there would be no tokens, or encryption would begin or end.
    pub fn reload(&self, tokens: Tokens, tls: Option<Tls>) -> Result<(), ServeError> {
        let settings = Settings { tokens: tokens.clone(), ..(*self.state.settings).clone() };
        settings.check()?;
        if tls.is_some() != self.tls.get().is_some() {
            return Err(ServeError::Encryption);
        }
        self.state.tokens.set(tokens);
        self.state.admitted.end_revoked();
        self.tls.set(tls);
        Ok(())
    }

    /// Says goodbye to those who follow, and has the service take and begin nothing more; requests are answered on. So
    /// a request for `/readyz` learns that the end has begun, and remote workers can say what came of their leases.
    pub fn drain(&self) {
        self.state.core.drain();
        self.state.closing.cancel();
    }

    /// Accepts nothing more, answers what was asked, says goodbye to those who follow, and returns when all
    /// connections have ended, or the time is up.
    pub async fn stop(self, within: Duration) {
        // Who asks now is told that it stops; who waits for something is answered.
        self.drain();
        self.stopping.cancel();
        self.state.streams.close();
        self.connections.close();
        let all = async {
            self.connections.wait().await;
            self.state.streams.wait().await;
        };
        let _ = tokio::time::timeout(within, all).await;
    }
}

struct Accepting {
    routes: Router,
    tls: Current<Option<Tls>>,
    settings: Arc<Settings>,
    stopping: CancellationToken,
    connections: TaskTracker,
}

impl Accepting {
    async fn run(self, listener: TcpListener) {
        let places = Places::new(&self.settings);
        loop {
            // What finds no place waits in the system's line.
            let permit = tokio::select! {
                permit = places.permit() => permit,
                () = self.stopping.cancelled() => return,
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stopping.cancelled() => return,
            };
            let (stream, peer) = match accepted {
                Ok((stream, peer)) => (stream, peer),
                Err(error) => {
                    // Too many open files, mostly: it passes when some are closed.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (routes, settings) = (self.routes.clone(), Arc::clone(&self.settings));
            let tls = self.tls.get();
            let Some(place) = places.take(permit, Some(peer.ip())) else {
                turn_away(&stream, tls.is_some());
                continue;
            };
            let stopping = self.stopping.clone();
            // In a box, so that what an upgraded connection has left behind is small.
            self.connections.spawn(Box::pin(async move {
                connection(stream, peer, Arc::new(place), routes, &settings, tls, stopping).await;
            }));
        }
    }
}

/// Tells a client that it has as many connections as it may have. What does not fit into the system's buffer at once is
/// not sent; nor is anything, if it would have to be encrypted.
fn turn_away(stream: &TcpStream, is_encrypted: bool) {
    tracing::debug!("a connection was refused: its client has as many as it may have");
    if !is_encrypted {
        let _ = stream.try_write(
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        );
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    place: Arc<Place>,
    routes: Router,
    settings: &Settings,
    tls: Option<Tls>,
    stopping: CancellationToken,
) {
    // Answers are small, and somebody waits for each.
    let _ = stream.set_nodelay(true);
    let stream = Unread::new(stream, settings.body_timeout);
    // Each in a box of its own, so that a plain connection has no room for what encryption needs.
    match tls {
        None => Box::pin(serve(stream, peer, place, routes, settings, stopping)).await,
        Some(tls) => {
            let shaken =
                tokio::time::timeout(settings.head_timeout, Box::pin(tls.accept(stream))).await;
            if let Ok(Ok(stream)) = shaken {
                Box::pin(serve(stream, peer, place, routes, settings, stopping)).await;
            }
        }
    }
}

/// The routes, for what comes from one peer.
struct ForPeer {
    routes: TowerToHyperService<Router>,
    peer: SocketAddr,
    place: OfConnection,
    slot: Slot,
}

impl hyper::service::Service<Request<Incoming>> for ForPeer {
    type Response = Response;
    type Error = Infallible;
    type Future =
        <TowerToHyperService<Router> as hyper::service::Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(self.peer));
        // A stream keeps it, wherever the connection goes.
        extensions.insert(self.place.clone());
        extensions.insert(self.slot.clone());
        self.routes.call(request)
    }
}

/// Serves a connection: requests, and then the stream of events that has taken it over, if there is one.
async fn serve<S>(
    stream: S,
    peer: SocketAddr,
    place: Arc<Place>,
    routes: Router,
    settings: &Settings,
    stopping: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // In a box of its own, which is gone when a stream goes on alone.
    let requests = Box::pin(answer(stream, peer, Arc::clone(&place), routes, settings, stopping));
    if let Some((stream, events, has_more)) = requests.await {
        takeover::send(stream, events, has_more).await;
    }
    drop(place);
}

/// Answers requests. Returns what a stream of events goes on with: the transport, the stream, and whether something was read
/// behind its request.
async fn answer<S>(
    stream: S,
    peer: SocketAddr,
    place: Arc<Place>,
    routes: Router,
    settings: &Settings,
    stopping: CancellationToken,
) -> Option<(S, Box<Events>, bool)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // HTTP/1 and nothing else: finding out which version a client speaks would wait for its first bytes
    // without end.
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(settings.head_timeout);
    // One of the reserve answers one request.
    builder.keep_alive(!place.is_reserve);
    let slot = Slot::default();
    let stream = TokioIo::new(Watched::new(stream, slot.clone()));
    let routes = TowerToHyperService::new(routes);
    let routes = ForPeer { routes, peer, place: OfConnection(place), slot: slot.clone() };
    let mut connection = builder.serve_connection(stream, routes).with_upgrades();
    let mut is_stopping = false;
    let events = loop {
        let ended = poll_fn(|context| {
            let ended = Pin::new(&mut connection).poll(context).map(|_| None);
            if ended.is_pending() {
                slot.take().map_or(Poll::Pending, |events| Poll::Ready(Some(events)))
            } else {
                ended
            }
        });
        tokio::select! {
            ended = ended => break ended?,
            () = stopping.cancelled(), if !is_stopping => {
                Pin::new(&mut connection).graceful_shutdown();
                // The one who waits for all connections has a bound on that.
                is_stopping = true;
            }
        }
    };
    let parts = connection.into_parts()?;
    Some((parts.io.into_inner().into_inner(), events, !parts.read_buf.is_empty()))
}
