//! HTTP server: accepts connections up to a bound, serves them, and ends each after its last answer
//! or at a deadline.

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
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::app_state::AppState;
use super::auth::{Replaceable, Tokens};
use super::connection_limits::{ConnectionLimits, ConnectionPermit, SharedConnectionPermit};
use super::event_stream::EventStream;
use super::forward;
use super::lease_transport::{self, OwnRoutes};
use super::router::router;
use super::settings::{HttpSettings, ServeError};
use super::startup_responses;
use super::takeover::{self, FlushWatcher, TakeoverSlot};
use super::tls::TlsIdentity;
use super::write_timeout::WriteTimeoutStream;
use crate::Service;
use crate::lease_runner::LeaseRunner;
use crate::node::{Node, NodeAddress};

/// Running HTTP server.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    /// Cancelled when the server accepts no more connections.
    stopping: CancellationToken,
    state: AppState,
    /// TLS settings for connections accepted from now on.
    tls: Replaceable<Option<TlsIdentity>>,
    /// Tracks the accept loop and the tasks of connections.
    connections: TaskTracker,
    routes: Replaceable<Router>,
    runner: Option<LeaseRunner>,
    /// Pauses the runner while the node is drained; ends when it is dropped.
    _pausing: Option<AbortOnDropHandle<()>>,
}

/// Bound address of a service that is starting. Answers `/livez`, says on `/readyz` that the service
/// is starting, and refuses all other requests with 503. A node of a cluster forwards them instead.
///
/// A large store takes a while to recover. Probes get answers meanwhile, so that a supervisor does
/// not take the start for a failure. Dropped, it stops accepting connections.
#[derive(Debug)]
pub struct StartingServer {
    address: SocketAddr,
    settings: HttpSettings,
    /// Stops accepting when it is dropped.
    stopping: DropGuard,
    /// Routes for connections accepted from now on.
    routes: Replaceable<Router>,
    tls: Replaceable<Option<TlsIdentity>>,
    /// Tracks the accept loop, the tasks of connections and WebSockets that are forwarded.
    connections: TaskTracker,
    node: Option<Node>,
    /// Ends event streams and WebSockets that are forwarded.
    closing: CancellationToken,
    runner: Option<LeaseRunner>,
    /// Connects the runner with the owner; ends when it is dropped.
    following: Option<AbortOnDropHandle<()>>,
    /// Pauses the runner while the node is drained; ends when it is dropped.
    pausing: Option<AbortOnDropHandle<()>>,
}

/// Send buffer of a connection, in bytes; the system reports it writable when about a third is
/// free. The system's own default can grow to megabytes, and a slow but steady reader would then
/// look idle for long.
const SEND_BUFFER: u32 = 256 * 1024;

/// Maximum number of connections in the listener's backlog.
const LISTEN_BACKLOG: u32 = 1024;

fn listener(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Lets a new server bind the address directly after an old one.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(listen)?;
    socket.listen(LISTEN_BACKLOG)
}

impl StartingServer {
    /// Binds the address and answers probes on the current runtime.
    ///
    /// # Errors
    /// If the address cannot be bound, or is reachable by others and there are no tokens.
    pub async fn bind(settings: HttpSettings) -> Result<StartingServer, ServeError> {
        settings.check()?;
        let listen = settings.listen;
        let failed = |source| ServeError::Listen { listen, source };
        let listener = listener(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stopping, connections) = (CancellationToken::new(), TaskTracker::new());
        let tls = Replaceable::new(settings.tls.clone());
        let shared = Arc::new(settings.clone());
        let routes = Replaceable::new(startup_responses::router(Arc::clone(&shared)));
        let accepting = AcceptLoop {
            routes: routes.clone(),
            tls: tls.clone(),
            settings: shared,
            stopping: stopping.clone(),
            connections: connections.clone(),
        };
        // Tracked, so that a stop ends after the address is free and no connection is accepted behind it.
        connections.spawn(accepting.run(listener));
        let stopping = stopping.drop_guard();
        let closing = CancellationToken::new();
        Ok(StartingServer {
            address,
            settings,
            stopping,
            routes,
            tls,
            connections,
            node: None,
            closing,
            runner: None,
            following: None,
            pausing: None,
        })
    }

    /// Becomes a node of a cluster, which forwards requests to the owner of the store until it is the owner itself. The others reach it at this
    /// address.
    #[must_use]
    pub fn join(mut self, address: NodeAddress) -> (StartingServer, Node) {
        let certificate = self.tls.get().map(|tls| tls.certificate);
        let node = Node::new(address.with_certificate(certificate));
        self.forward_by(&node);
        self.node = Some(node.clone());
        (self, node)
    }

    /// Forwards requests to the owner of the store.
    fn forward_by(&self, node: &Node) {
        let (connections, closing) = (self.connections.clone(), self.closing.clone());
        let settings = Arc::new(self.settings.clone());
        self.routes.set(forward::router(node.clone(), settings, connections, closing));
    }

    /// Connects a runner with the owner of the store: with another node, if this server has [joined](Self::join) a cluster, and with its own
    /// service from its start on.
    ///
    /// # Panics
    /// Panics if it is called outside of a Tokio runtime.
    #[must_use]
    pub fn lease_to(mut self, runner: &LeaseRunner) -> StartingServer {
        let follow = |node: &Node| lease_transport::follow(node.clone(), runner.clone());
        let pause = |node: &Node| lease_transport::pause(node.clone(), runner.clone());
        let node = self.node.as_ref();
        self.following = node.map(|node| AbortOnDropHandle::new(tokio::spawn(follow(node))));
        self.pausing = node.map(|node| AbortOnDropHandle::new(tokio::spawn(pause(node))));
        self.runner = Some(runner.clone());
        self
    }

    /// Replaces the certificate, for connections accepted from now on.
    ///
    /// # Errors
    /// If encryption would be switched on or off.
    pub fn reload(&self, tls: Option<TlsIdentity>) -> Result<(), ServeError> {
        replace_certificate(&self.tls, tls, self.node.as_ref())
    }

    /// Stops accepting connections, answers pending requests, ends event streams and WebSockets that are forwarded, and returns when all
    /// connections have ended or the time is up.
    pub async fn stop(self, within: Duration) {
        let StartingServer { stopping, connections, closing, .. } = self;
        closing.cancel();
        drop(stopping);
        connections.close();
        let _ = tokio::time::timeout(within, connections.wait()).await;
    }

    /// Returns the bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the service, which has started.
    #[must_use]
    pub fn serve(self, service: &Service) -> HttpServer {
        let StartingServer {
            address,
            settings,
            stopping,
            routes,
            tls,
            connections,
            node,
            closing: _,
            runner,
            following,
            pausing,
        } = self;
        // Before the runner is connected with this server.
        drop(following);
        let name =
            node.as_ref().map_or_else(|| address.to_string(), |node| node.address().to_string());
        let state = AppState::new(service, settings, node);
        let own = router(state.clone());
        if let Some(runner) = &runner {
            runner.connect(Some(Arc::new(OwnRoutes { routes: own.clone(), name })));
        }
        routes.set(own);
        let stopping = stopping.disarm();
        HttpServer { address, stopping, state, tls, connections, routes, runner, _pausing: pausing }
    }
}

impl HttpServer {
    /// Binds the address and serves on the current runtime.
    ///
    /// # Errors
    /// If the address cannot be bound, or is reachable by others and there are no tokens.
    pub async fn start(
        service: &Service,
        settings: HttpSettings,
    ) -> Result<HttpServer, ServeError> {
        Ok(StartingServer::bind(settings).await?.serve(service))
    }

    /// Returns the bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the tokens and the certificate. New requests are checked against the new tokens,
    /// and new connections get the new certificate. Event streams and WebSockets of a removed token
    /// end; other open connections stay.
    ///
    /// # Errors
    /// If the address is reachable by others and the new tokens are empty, or encryption would be
    /// switched on or off.
    pub fn reload(&self, tokens: Tokens, tls: Option<TlsIdentity>) -> Result<(), ServeError> {
        let settings = HttpSettings { tokens: tokens.clone(), ..(*self.state.settings).clone() };
        settings.check()?;
        replace_certificate(&self.tls, tls, self.state.node.as_ref())?;
        self.state.tokens.set(tokens);
        self.state.admitted.end_revoked();
        Ok(())
    }

    /// Ends event streams and WebSockets, and stops the service from accepting or starting work.
    /// Requests are still answered, so that `/readyz` reports the shutdown and remote workers can
    /// report their results.
    pub fn drain(&self) {
        self.state.core.drain();
        self.state.closing.cancel();
    }

    /// Gives the service up, so that another node can own the store: ends event streams and WebSockets, waits at most `within` for that, and
    /// forwards all further requests to the next owner. Connections stay open. Afterwards the [service](Service::stop) should stop.
    ///
    /// Returns `None`, and the server stops, if it is not a [node](StartingServer::join).
    pub async fn hand_over(self, within: Duration) -> Option<StartingServer> {
        let Some(node) = self.state.node.clone() else {
            self.stop(within).await;
            return None;
        };
        self.drain();
        let settings = (*self.state.settings).clone();
        let settings = HttpSettings { tokens: self.state.tokens.get(), ..settings };
        let starting = StartingServer {
            address: self.address,
            settings,
            stopping: self.stopping.drop_guard(),
            routes: self.routes,
            tls: self.tls,
            connections: self.connections,
            node: Some(node.clone()),
            closing: CancellationToken::new(),
            runner: None,
            following: None,
            pausing: None,
        };
        starting.forward_by(&node);
        self.state.streams.close();
        let _ = tokio::time::timeout(within, self.state.streams.wait()).await;
        Some(match &self.runner {
            Some(runner) => starting.lease_to(runner),
            None => starting,
        })
    }

    /// Stops accepting connections, answers pending requests, ends event streams and WebSockets,
    /// and returns when all connections have ended or the time is up.
    pub async fn stop(self, within: Duration) {
        // Draining first: new requests learn of the shutdown, and long polls return.
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

fn replace_certificate(
    known: &Replaceable<Option<TlsIdentity>>,
    tls: Option<TlsIdentity>,
    node: Option<&Node>,
) -> Result<(), ServeError> {
    if tls.is_some() != known.get().is_some() {
        return Err(ServeError::Encryption);
    }
    if let Some(node) = node {
        node.set_certificate(tls.as_ref().map(|tls| tls.certificate));
    }
    known.set(tls);
    Ok(())
}

struct AcceptLoop {
    routes: Replaceable<Router>,
    tls: Replaceable<Option<TlsIdentity>>,
    settings: Arc<HttpSettings>,
    stopping: CancellationToken,
    connections: TaskTracker,
}

impl AcceptLoop {
    async fn run(self, listener: TcpListener) {
        let places = ConnectionLimits::new(&self.settings);
        loop {
            // Connections beyond the limit wait in the system's backlog.
            let permit = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                permit = places.permit() => permit,
            };
            let accepted = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok((stream, peer)) => (stream, peer),
                Err(error) => {
                    // Usually too many open files, which passes as connections close.
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
            // Boxed, so that an upgraded connection leaves only a small task behind.
            self.connections.spawn(Box::pin(async move {
                connection(stream, peer, Arc::new(place), routes, &settings, tls, stopping).await;
            }));
        }
    }
}

/// Refuses a connection beyond the limit per client. Only as much is sent as fits in the system's
/// buffer, and nothing on an encrypted connection.
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
    place: Arc<ConnectionPermit>,
    routes: Replaceable<Router>,
    settings: &HttpSettings,
    tls: Option<TlsIdentity>,
    stopping: CancellationToken,
) {
    // Answers are small and latency counts, so they must not wait for more data.
    let _ = stream.set_nodelay(true);
    let stream = WriteTimeoutStream::new(stream, settings.body_timeout);
    // Boxed separately, so that a plain connection does not reserve memory for TLS.
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

/// Routes for requests from one peer. They are those of the service as soon as it has started.
struct PeerRoutes {
    routes: Replaceable<Router>,
    peer: SocketAddr,
    place: SharedConnectionPermit,
    slot: TakeoverSlot,
}

impl hyper::service::Service<Request<Incoming>> for PeerRoutes {
    type Response = Response;
    type Error = Infallible;
    type Future =
        <TowerToHyperService<Router> as hyper::service::Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(self.peer));
        // A stream must keep the connection's place after it takes the connection over.
        extensions.insert(self.place.clone());
        extensions.insert(self.slot.clone());
        TowerToHyperService::new(self.routes.get()).call(request)
    }
}

/// Serves a connection: its requests, and then the event stream that has taken it over, if there is
/// one.
async fn serve<S>(
    stream: S,
    peer: SocketAddr,
    place: Arc<ConnectionPermit>,
    routes: Replaceable<Router>,
    settings: &HttpSettings,
    stopping: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Boxed, so that its memory is freed when a stream continues alone.
    let requests = Box::pin(answer(stream, peer, Arc::clone(&place), routes, settings, stopping));
    if let Some((stream, events, has_more)) = requests.await {
        takeover::send(stream, events, has_more).await;
    }
    drop(place);
}

/// Answers requests. Returns the transport and the event stream that takes it over, with a flag for
/// bytes already read behind the stream's request.
async fn answer<S>(
    stream: S,
    peer: SocketAddr,
    place: Arc<ConnectionPermit>,
    routes: Replaceable<Router>,
    settings: &HttpSettings,
    stopping: CancellationToken,
) -> Option<(S, Box<EventStream>, bool)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Only HTTP/1: detecting the version would wait for a client's first bytes without a timeout.
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(settings.head_timeout);
    // A connection of the reserve answers one request.
    builder.keep_alive(!place.is_reserve);
    let slot = TakeoverSlot::default();
    let stream = TokioIo::new(FlushWatcher::new(stream, slot.clone()));
    let routes =
        PeerRoutes { routes, peer, place: SharedConnectionPermit(place), slot: slot.clone() };
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
                // The caller of `stop` bounds this wait by its deadline.
                is_stopping = true;
            }
        }
    };
    let parts = connection.into_parts()?;
    Some((parts.io.into_inner().into_inner(), events, !parts.read_buf.is_empty()))
}
