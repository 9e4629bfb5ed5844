//! Memory of an idle stream of events, of one job or of everything, and of an idle WebSocket.
//!
//! One test, for the allocator that counts is the whole process's.

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicIsize, Ordering};

use common::{Log, builder, serve};

struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it came; counting beside it touches no memory
// of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps what `GlobalAlloc` asks of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const STREAMS: usize = 200;

/// Maximum size of an idle stream in bytes, with what the allocator and the runtime's tables add.
const MAX_EACH: isize = 6 * 1024;

/// Maximum size of an idle WebSocket in bytes. A read buffer of the WebSocket library's default size has 128 KiB.
const MAX_EACH_WEBSOCKET: isize = 12 * 1024;

/// Opens a stream of events, and returns when its first events are here.
fn open(address: SocketAddr, path: &str) -> TcpStream {
    request(address, path, "", b": keylane")
}

/// Opens a WebSocket, and returns when the server has answered a ping: its task runs and is idle again.
fn open_websocket(address: SocketAddr) -> TcpStream {
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut stream = request(address, "/v1/ws", upgrade, b"\r\n\r\n");
    // A ping without content, with a mask of zeros, and its answer.
    stream.write_all(&[0x89, 0x80, 0, 0, 0, 0]).unwrap();
    let mut pong = [0; 2];
    stream.read_exact(&mut pong).unwrap();
    assert_eq!(pong, [0x8a, 0]);
    stream
}

/// Sends a request, and returns when the answer has come up to `end`. The standard library's sockets allocate nothing.
fn request(address: SocketAddr, path: &str, headers: &str, end: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").unwrap();
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    let is_whole = |said: &[u8]| said.windows(end.len()).any(|part| part == end);
    while !is_whole(&said) {
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "{}", said.escape_ascii());
        said.extend_from_slice(&part[..read]);
    }
    stream
}

/// Live bytes of the process, once they are at most `most`: what a connection gives back is given back in its own time.
fn settle(most: isize) -> isize {
    for _ in 0..10_000 {
        if LIVE.load(Ordering::Relaxed) <= most {
            break;
        }
        std::thread::yield_now();
    }
    LIVE.load(Ordering::Relaxed)
}

/// Opens connections, and fails if the memory of each exceeds `max`.
fn measure(name: &str, max: isize, open: impl Fn() -> TcpStream) {
    // What the first ones need once is not theirs alone.
    let first: Vec<_> = (0..STREAMS).map(|_| open()).collect();
    let before = LIVE.load(Ordering::Relaxed);
    let streams: Vec<_> = (0..STREAMS).map(|_| open()).collect();
    let most = max * STREAMS as isize;
    let each = (settle(before + most) - before) / STREAMS as isize;
    println!("{name}: {each} bytes each");
    assert!(each <= max, "{each} bytes for each stream of {name}");
    drop((first, streams));
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_event_streams_and_websockets_are_small() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let job = client.submit(r#"{"kind":"hang","payload":1}"#).await;
    client.wait_until(&job, |job| job["counts"]["running"] == 1).await;
    let address = client.address;
    let measured = tokio::task::spawn_blocking(move || {
        for path in ["/v1/events".to_owned(), format!("/v1/jobs/{job}/events")] {
            measure(&path, MAX_EACH, || open(address, &path));
        }
        measure("/v1/ws", MAX_EACH_WEBSOCKET, || open_websocket(address));
    });
    measured.await.unwrap();
}
