//! TCP connections between a client and a server that a test can cut, silence or lead to another server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A forwarder, which cuts its connections and accepts no more when it is dropped.
#[derive(Debug)]
pub struct Forwarder {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Port of this machine to which new connections lead.
    to: AtomicU16,
    has_ended: AtomicBool,
    /// Time that bytes take in each direction.
    latency: Duration,
    /// Number of connections so far.
    accepted: AtomicUsize,
    /// Whether the next answer of PostgreSQL to a commit is lost.
    loses_commit: AtomicBool,
    connections: Mutex<Vec<Forwarded>>,
}

/// A connection of a client, and the one that it leads to.
#[derive(Debug)]
struct Forwarded {
    ends: [TcpStream; 2],
    /// Whether what arrives is dropped.
    is_silent: Arc<AtomicBool>,
}

impl Forwarder {
    /// Starts to forward connections to a port of this machine.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start(to: u16) -> Self {
        Self::start_with_latency(to, Duration::ZERO)
    }

    /// Starts as [`start`](Self::start) does. Bytes take this time in each direction, as between two machines.
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    #[must_use]
    pub fn start_with_latency(to: u16, latency: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            to: to.into(),
            has_ended: AtomicBool::new(false),
            latency,
            accepted: AtomicUsize::new(0),
            loses_commit: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.has_ended.load(Ordering::SeqCst) {
                    break;
                }
                accepting.accepted.fetch_add(1, Ordering::SeqCst);
                accepting.forward(client);
            }
        });
        Forwarder { port, shared }
    }

    /// Returns the port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Leads new connections to another port.
    pub fn lead_to(&self, port: u16) {
        self.shared.to.store(port, Ordering::SeqCst);
    }

    /// Closes all connections.
    pub fn cut(&self) {
        for connection in self.shared.connections.lock().expect("no panic").drain(..) {
            for end in connection.ends {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }

    /// Cuts a connection instead of forwarding the next answer of PostgreSQL to a commit, which has then
    /// taken effect.
    pub fn lose_next_commit(&self) {
        self.shared.loses_commit.store(true, Ordering::SeqCst);
    }

    /// Drops what arrives on the connections that are open, without closing them. New ones work.
    pub fn silence(&self) {
        for connection in self.shared.connections.lock().expect("no panic").iter() {
            connection.is_silent.store(true, Ordering::SeqCst);
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.cut();
    }
}

impl Shared {
    /// Connects a client to the server. If that is away, the client is cut off.
    fn forward(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.to.load(Ordering::SeqCst))) else {
            return;
        };
        // Pieces of a message would wait for each other.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let is_silent = Arc::new(AtomicBool::new(false));
        let copies = || Ok::<_, std::io::Error>([client.try_clone()?, server.try_clone()?]);
        let (Ok([from_client, to_server]), Ok([to_client, from_server]), Ok(ends)) =
            (copies(), copies(), copies())
        else {
            return;
        };
        self.connections
            .lock()
            .expect("no panic")
            .push(Forwarded { ends, is_silent: Arc::clone(&is_silent) });
        let (silent, shared) = (Arc::clone(&is_silent), Arc::clone(self));
        let latency = self.latency;
        thread::spawn(move || {
            copy(from_client, to_server, &silent, |_| {
                thread::sleep(latency);
                false
            });
        });
        thread::spawn(move || {
            copy(from_server, to_client, &is_silent, |bytes| {
                thread::sleep(latency);
                shared.loses(bytes)
            });
        });
    }

    /// Returns whether the answer of a server is lost, with its connection.
    fn loses(&self, answer: &[u8]) -> bool {
        let is_commit = answer.windows(7).any(|part| part == b"COMMIT\0");
        is_commit && self.loses_commit.swap(false, Ordering::SeqCst)
    }
}

/// Copies bytes until one of both ends closes or these bytes `cut` the connection, and then closes both.
fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    is_silent: &AtomicBool,
    cut: impl Fn(&[u8]) -> bool,
) {
    let mut bytes = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if cut(&bytes[..length]) {
            break;
        }
        let passes = !is_silent.load(Ordering::SeqCst);
        if passes && to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
