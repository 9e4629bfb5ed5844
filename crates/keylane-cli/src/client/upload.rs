//! Upload of a job with any number of subtasks in bounded memory: a thread reads records and makes
//! lines, and the request sends them. An error on the way leaves the request incomplete, and the
//! server then accepts none of it.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::Context;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Bytes;
use indicatif::ProgressBar;
use tokio::runtime::Handle;

use super::error::say;
use super::subtask_reader::SubtaskReader;

/// Number of bytes sent at a time: large enough that the cost of calls is small.
const PIECE: usize = 64 << 10;

/// Maximum number of pieces that wait for the network.
const MAX_PIECES: usize = 16;

/// Why the end of the body never came.
#[derive(Debug, thiserror::Error)]
#[error("the input broke off")]
pub(super) struct UploadAbort;

/// A body that is being read.
pub(super) type BodyStream = Channel<Bytes, UploadAbort>;

/// Sender of the body, filled by a thread. Unless it is marked as complete, the body ends as
/// broken, also when the thread panics.
struct BodyWriter {
    pieces: Option<Sender<Bytes, UploadAbort>>,
    runtime: Handle,
}

impl BodyWriter {
    /// Sends a piece; false if the receiver is gone.
    fn send(&mut self, piece: Vec<u8>) -> bool {
        let Some(pieces) = &mut self.pieces else { return false };
        self.runtime.block_on(pieces.send_data(piece.into())).is_ok()
    }

    /// All is there.
    fn finish(mut self) {
        drop(self.pieces.take());
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        if let Some(pieces) = self.pieces.take() {
            pieces.abort(UploadAbort);
        }
    }
}

/// Starts to read. The receiver gets a reading error before the body ends as broken.
pub(super) fn start(
    head: Vec<u8>,
    subtasks: SubtaskReader,
    bar: ProgressBar,
) -> anyhow::Result<(BodyStream, Receiver<anyhow::Error>)> {
    let (pieces, body) = Channel::new(MAX_PIECES);
    let (tell, broken) = channel();
    let filling = BodyWriter { pieces: Some(pieces), runtime: Handle::current() };
    thread::Builder::new()
        .name("keylane-upload".into())
        .spawn(move || {
            let mut filling = filling;
            match fill(&mut filling, head, subtasks, &bar) {
                Ok(true) => filling.finish(),
                Ok(false) => {}
                Err(error) => {
                    // Sent before `filling` is dropped. Without a receiver there is no request.
                    let _ = tell.send(error);
                }
            }
        })
        .context("cannot start a thread")?;
    Ok((body, broken))
}

/// Sends the line of the head and those of all subtasks; false if the server stopped reading.
fn fill(
    filling: &mut BodyWriter,
    head: Vec<u8>,
    mut subtasks: SubtaskReader,
    bar: &ProgressBar,
) -> anyhow::Result<bool> {
    let mut piece = head;
    piece.push(b'\n');
    let mut count = 0;
    while subtasks.next(&mut piece)? {
        count += 1;
        if piece.len() >= PIECE {
            bar.inc(std::mem::take(&mut count));
            let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE + PIECE / 4));
            if !filling.send(full) {
                return Ok(false);
            }
        }
    }
    bar.inc(count);
    if subtasks.lacks_all_keys() {
        bar.suspend(|| say("note: no record had a key; check --key"));
    }
    Ok(filling.send(piece))
}
