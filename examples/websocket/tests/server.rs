//! A real client against a real server: order, back-pressure, disconnects, and the close handler.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use example_websocket::{ConnectionId, Handler, Limits, Server};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Longer than anything here takes on the slowest machine: what is not over by then hangs.
const LONG: Duration = Duration::from_secs(120);

type Client = WebSocketStream<TcpStream>;

/// Records of the handler, and the connections that may go on.
#[derive(Default)]
struct Seen {
    /// Of each connection the messages, in the order in which they were handled, and its end.
    log: Mutex<HashMap<ConnectionId, Vec<String>>>,
    /// A message "wait" waits until this is true.
    open: Mutex<bool>,
    opened: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Seen {
    fn write(&self, connection: ConnectionId, event: &str) {
        lock(&self.log).entry(connection).or_default().push(event.to_owned());
    }

    fn of(&self, connection: ConnectionId) -> Vec<String> {
        lock(&self.log).get(&connection).cloned().unwrap_or_default()
    }

    fn open(&self) {
        *lock(&self.open) = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let open = lock(&self.open);
        let waited = self.opened.wait_timeout_while(open, LONG, |open| !*open);
        assert!(*waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0, "nobody opened");
    }
}

struct Recorder(Arc<Seen>);

impl Handler for Recorder {
    fn message(&self, connection: ConnectionId, text: &str) -> String {
        if text == "wait" {
            self.0.wait();
        }
        self.0.write(connection, &text[..text.len().min(20)]);
        assert_ne!(text, "panic", "on purpose");
        format!("{connection}:{text}")
    }

    fn closed(&self, connection: ConnectionId) {
        self.0.write(connection, "closed");
    }

    fn request(&self, question: &str) -> String {
        format!("re: {question}")
    }
}

struct World {
    server: Arc<Server<Recorder>>,
    seen: Arc<Seen>,
    address: SocketAddr,
}

/// However the test ends, no thread waits for it.
impl Drop for World {
    fn drop(&mut self) {
        self.seen.open();
    }
}

impl World {
    async fn new(limits: Limits) -> Self {
        let seen = Arc::new(Seen::default());
        let server = Server::new(Recorder(seen.clone()), limits).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = server.routes();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        World { server, seen, address }
    }

    async fn connect(&self) -> Client {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let url = format!("ws://{}/messages", self.address);
        tokio_tungstenite::client_async(url, tcp).await.unwrap().0
    }

    async fn eventually(&self, what: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !what(self) {
            assert!(start.elapsed() < LONG, "it never happens");
            tokio::task::yield_now().await;
        }
    }

    async fn request(&self, question: &str) -> String {
        let mut tcp = TcpStream::connect(self.address).await.unwrap();
        let head =
            format!("GET /request?{question} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        tcp.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

/// Runs a test on a runtime with two threads, and fails it if it hangs.
fn soon(test: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .enable_time()
        .build()
        .unwrap();
    let test = runtime.spawn(test);
    let ended = runtime.block_on(async { tokio::time::timeout(LONG, test).await });
    runtime.shutdown_background();
    ended.expect("the test hangs").unwrap();
}

async fn say(client: &mut Client, text: impl Into<String>) {
    client.send(Message::text(text.into())).await.unwrap();
}

/// The number of the connection, and the answer.
async fn hear(client: &mut Client) -> (ConnectionId, String) {
    let answer = client.next().await.unwrap().unwrap().into_text().unwrap();
    let (connection, text) = answer.split_once(':').unwrap();
    (connection.parse().unwrap(), text.to_owned())
}

#[test]
fn each_connections_messages_are_answered_in_order() {
    soon(async {
        let world = Arc::new(World::new(Limits::default()).await);
        let clients = (0..20).map(|client| {
            let world = world.clone();
            tokio::spawn(async move {
                let (mut sink, mut stream) = world.connect().await.split();
                let sender = tokio::spawn(async move {
                    for n in 0..300 {
                        sink.send(Message::text(format!("{client}-{n}"))).await.unwrap();
                    }
                    sink
                });
                let mut connections = Vec::new();
                for n in 0..300 {
                    let answer = stream.next().await.unwrap().unwrap().into_text().unwrap();
                    let (connection, text) = answer.split_once(':').unwrap();
                    assert_eq!(text, format!("{client}-{n}"));
                    connections.push(connection.parse::<ConnectionId>().unwrap());
                }
                connections.dedup();
                assert_eq!(connections.len(), 1);
                let mut sink = sender.await.unwrap();
                sink.close().await.unwrap();
                connections[0]
            })
        });
        for client in clients.collect::<Vec<_>>() {
            let connection = client.await.unwrap();
            world.eventually(|world| world.seen.of(connection).len() == 301).await;
            let log = world.seen.of(connection);
            let numbers = log[..300].iter().map(|text| text.split_once('-').unwrap().1);
            assert!(numbers.map(|n| n.parse::<u32>().unwrap()).eq(0..300));
            assert_eq!(log[300], "closed");
        }
    });
}

#[test]
fn a_slow_handler_holds_no_other_connection_and_no_request_up() {
    soon(async {
        let world = World::new(Limits { workers: 2, ..Limits::default() }).await;
        let (mut slow, mut quick) = (world.connect().await, world.connect().await);
        say(&mut slow, "wait").await;
        say(&mut slow, "behind").await;
        for n in 0..200 {
            say(&mut quick, n.to_string()).await;
            assert_eq!(hear(&mut quick).await.1, n.to_string());
            if n % 20 == 0 {
                let answer = world.request(&format!("n{n}")).await;
                assert!(answer.ends_with(&format!("re: n{n}")), "{answer}");
            }
        }
        world.seen.open();
        assert_eq!(hear(&mut slow).await.1, "wait");
        assert_eq!(hear(&mut slow).await.1, "behind");
    });
}

/// The peer has sent more than all buffers of the sockets hold; of this the server has what its bounds
/// allow, and one message that waits to be let in.
#[test]
fn a_full_connection_is_not_read_and_takes_no_memory() {
    soon(async {
        let limits = Limits { workers: 2, messages: 4, answers: 16, ..Limits::default() };
        let world = World::new(limits).await;
        let mut flood = world.connect().await;
        say(&mut flood, "wait").await;
        let sender = tokio::spawn(async move {
            let large = "x".repeat(60_000);
            for _ in 0..2_000 {
                say(&mut flood, large.clone()).await;
            }
            flood
        });
        let pool = world.server.pool();
        world.eventually(|_| pool.inspect().snapshot(0).submitters_held == 1).await;
        // Others have room.
        let mut quick = world.connect().await;
        for n in 0..100 {
            say(&mut quick, n.to_string()).await;
            assert_eq!(hear(&mut quick).await.1, n.to_string());
        }
        // Nothing that could be waited for would let it go on: 120 MB are not sent while four are handled.
        world.eventually(|_| pool.inspect().snapshot(0).unfinished == 4).await;
        assert_eq!(pool.inspect().snapshot(0).submitters_held, 1);
        assert!(!sender.is_finished());
        world.seen.open();
        // It goes on, as far as the answers are taken.
        world.eventually(|_| pool.inspect().snapshot(0).unfinished == 0).await;
        assert!(!sender.is_finished());
    });
}

/// Answers that are not taken stop the reading, and park no worker.
#[test]
fn a_peer_that_takes_no_answers_is_not_read() {
    soon(async {
        let limits = Limits { workers: 1, messages: 4, answers: 4, ..Limits::default() };
        let world = World::new(limits).await;
        let mut deaf = world.connect().await;
        let sender = tokio::spawn(async move {
            let large = "x".repeat(60_000);
            for _ in 0..2_000 {
                say(&mut deaf, large.clone()).await;
            }
        });
        // The only worker is free for another connection, again and again.
        let mut quick = world.connect().await;
        for n in 0..300 {
            say(&mut quick, n.to_string()).await;
            assert_eq!(hear(&mut quick).await.1, n.to_string());
        }
        assert!(!sender.is_finished(), "240 MB fit into no buffer");
        sender.abort();
    });
}

#[test]
fn a_disconnect_in_the_middle_of_a_message_closes_after_the_ones_before_it() {
    soon(async {
        let world = World::new(Limits::default()).await;
        let mut client = world.connect().await;
        say(&mut client, "wait").await;
        say(&mut client, "second").await;
        // A text frame of 100 bytes, masked, of which 10 come.
        let tcp = client.get_mut();
        tcp.write_all(&[0x81, 0x80 | 100, 1, 2, 3, 4]).await.unwrap();
        tcp.write_all(&[7; 10]).await.unwrap();
        drop(client);
        // The close handler waits behind the message that still runs.
        let pool = world.server.pool();
        world.eventually(|_| pool.inspect().snapshot(0).unfinished == 3).await;
        assert_eq!(world.seen.of(1), Vec::<String>::new());
        world.seen.open();
        world.eventually(|_| pool.inspect().snapshot(0).unfinished == 0).await;
        assert_eq!(world.seen.of(1), ["wait", "second", "closed"]);
    });
}

#[test]
fn a_handler_that_panics_ends_its_message_alone() {
    soon(async {
        let world = World::new(Limits::default()).await;
        let mut client = world.connect().await;
        for text in ["first", "panic", "third"] {
            say(&mut client, text).await;
        }
        assert_eq!(hear(&mut client).await.1, "first");
        assert_eq!(hear(&mut client).await.1, "third");
        client.close(None).await.unwrap();
        world.eventually(|world| world.seen.of(1).len() == 4).await;
        assert_eq!(world.seen.of(1), ["first", "panic", "third", "closed"]);
    });
}

#[test]
fn a_message_that_is_too_long_ends_its_connection_and_the_handler_is_told() {
    soon(async {
        let world = World::new(Limits { message_size: 1000, ..Limits::default() }).await;
        let mut client = world.connect().await;
        say(&mut client, "x".repeat(1001)).await;
        world.eventually(|world| world.seen.of(1) == ["closed"]).await;
    });
}
