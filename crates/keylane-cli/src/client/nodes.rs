//! `keylane nodes`: lists the servers that share a store.

use clap::Args;
use keylane_service::wire::{NodeView, Page, Timestamp};
use serde_json::value::RawValue;

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{age, plain, table};
use super::server_client::{ServerClient, block_on};
use crate::exit::ExitOutcome;

/// Lists the servers that share a store in a database, and which of them is the owner.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct NodesArgs {
    /// Print JSON, a line for each server.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane nodes`.
pub(crate) fn run(args: &NodesArgs) -> anyhow::Result<ExitOutcome> {
    settle(args.list().map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl NodesArgs {
    fn list(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.server)?;
        let page: Page<Box<RawValue>> = block_on(server.read(&["v1", "nodes"], &[]))?;
        let now = Timestamp::now();
        list::print(&page.items, self.json, |nodes| {
            table(&COLUMNS, &[], &nodes.iter().map(|node| row(node, now)).collect::<Vec<_>>())
        })
    }
}

const COLUMNS: [&str; 4] = ["SERVER", "ROLE", "VERSION", "SEEN"];

fn row(node: &NodeView, now: Timestamp) -> Vec<String> {
    vec![
        plain(&node.address).into_owned(),
        if node.owner { "owner" } else { "waits" }.to_owned(),
        plain(&node.version).into_owned(),
        age(node.last_contact, now),
    ]
}
