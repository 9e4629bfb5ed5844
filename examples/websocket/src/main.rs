//! Listens on 127.0.0.1:3000, or where the first argument says.
//!
//! ```sh
//! cargo run -p example-websocket
//! curl 'http://127.0.0.1:3000/request?hello'
//! ```

use std::error::Error;

use example_websocket::{ConnectionId, Handler, Limits, Server};

/// Says back what it is told.
#[derive(Debug)]
struct Echo;

impl Handler for Echo {
    fn message(&self, connection: ConnectionId, text: &str) -> String {
        format!("{connection}: {text}")
    }

    fn closed(&self, connection: ConnectionId) {
        println!("connection {connection} is over");
    }

    fn request(&self, question: &str) -> String {
        question.to_owned()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let server = Server::new(Echo, Limits::default())?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(&address).await?;
        println!("ws://{}/messages", listener.local_addr()?);
        axum::serve(listener, server.routes()).await?;
        Ok(())
    })
}
