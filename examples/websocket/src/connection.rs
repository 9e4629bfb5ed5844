//! One connection: its messages into the pool, its answers out of it, and its end.

use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;

use crate::handler::{ConnectionId, Handler};
use crate::server::Server;

/// Serves a connection until it is over.
pub(crate) async fn serve<H: Handler>(
    server: Arc<Server<H>>,
    connection: ConnectionId,
    socket: WebSocket,
) {
    let (sink, stream) = socket.split();
    let (answers, outgoing) = mpsc::channel(server.limits.answers);
    let writer = tokio::spawn(write(sink, outgoing));
    read(&server, connection, stream, answers).await;
    // Submitted after all messages of the connection, so it runs after them. If the pool is closed the
    // server is being stopped, and nothing runs any more.
    let shared = server.clone();
    let _ =
        server.pool.task(connection).execute_async(move || shared.handler.closed(connection)).await;
    // Ends when the last task has sent its answer, or the peer takes none.
    let _ = writer.await;
}

/// Reads messages for as long as there is room for their answers, and for them.
async fn read<H: Handler>(
    server: &Arc<Server<H>>,
    connection: ConnectionId,
    mut stream: SplitStream<WebSocket>,
    answers: mpsc::Sender<String>,
) {
    loop {
        // The place of the answer comes first: so no worker ever waits for a peer that takes none. There
        // is none to come if the writer has given up.
        let Ok(place) = answers.clone().reserve_owned().await else { return };
        let text = match stream.next().await {
            Some(Ok(Message::Text(text))) => text,
            // Pings are answered by the WebSocket itself.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_))) => continue,
            // The end, whether it was said or not, in the middle of a message or between two.
            Some(Ok(Message::Close(_)) | Err(_)) | None => return,
        };
        let shared = server.clone();
        let work = move || {
            let answer = shared.handler.message(connection, text.as_str());
            place.send(answer);
        };
        // Waits here while the connection has as many unfinished messages as it may, or the pool is full;
        // meanwhile nothing is read from this socket. A full connection holds no other up.
        if server.pool.task(connection).execute_async(work).await.is_err() {
            return;
        }
    }
}

/// Writes answers as fast as the peer takes them.
async fn write(mut sink: SplitSink<WebSocket, Message>, mut outgoing: mpsc::Receiver<String>) {
    while let Some(answer) = outgoing.recv().await {
        if sink.send(Message::text(answer)).await.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}
