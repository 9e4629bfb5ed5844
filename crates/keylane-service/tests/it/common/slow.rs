//! Clients that read little of what they are sent, and jobs of which much is to be said.

use std::net::SocketAddr;

use keylane_service::Kind;
use keylane_service::handle::{Attempt, AttemptFailure, FunctionHandler};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

/// A connection for which the system takes little that is not read.
pub(crate) async fn small(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(address).await.unwrap()
}

/// A kind whose subtasks fail when the gate is open, each with as many words as are told to followers.
pub(crate) fn grumbling(gate: watch::Receiver<bool>) -> Kind {
    let grumble = FunctionHandler::new(move |_: Attempt| {
        let mut gate = gate.clone();
        async move {
            let _ = gate.wait_for(|is_open| *is_open).await;
            Err(AttemptFailure::lasting("!".repeat(AttemptFailure::MAX_BYTES)))
        }
    });
    Kind { attempts: 1, ..Kind::new(grumble) }
}
