//! What an idle stream of events costs the server: at most 12 KiB, of one job or of everything.
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

/// Bytes of an idle stream, with what the allocator and the runtime's tables add.
const MAX_EACH: isize = 6 * 1024;

/// Opens a stream, and returns when its first events are here. The standard library's sockets allocate nothing.
fn open(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    let is_whole = |said: &[u8]| said.windows(9).any(|nine| nine == b": keylane");
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

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_event_stream_is_small() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let job = client.submit(r#"{"kind":"hang","payload":1}"#).await;
    client.wait_until(&job, |job| job["counts"]["running"] == 1).await;
    let address = client.address;
    for path in ["/v1/events".to_owned(), format!("/v1/jobs/{job}/events")] {
        let measure = move || {
            // What the first ones need once is not theirs alone.
            let first: Vec<_> = (0..STREAMS).map(|_| open(address, &path)).collect();
            let before = LIVE.load(Ordering::Relaxed);
            let streams: Vec<_> = (0..STREAMS).map(|_| open(address, &path)).collect();
            let most = MAX_EACH * STREAMS as isize;
            let each = (settle(before + most) - before) / STREAMS as isize;
            println!("{path}: {each} bytes each");
            assert!(each <= MAX_EACH, "{each} bytes for each stream of {path}");
            drop((first, streams));
        };
        tokio::task::spawn_blocking(measure).await.unwrap();
    }
}
