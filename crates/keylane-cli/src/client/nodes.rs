//! `keylane nodes`: lists the servers that share a store, and drains or resumes one.

use clap::{Args, Subcommand};
use keylane_service::wire::{NodeView, Page, Timestamp};
use reqwest::Method;
use serde_json::value::RawValue;

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{age, plain, table};
use super::server_client::{ANSWER_WITHIN, ServerClient, block_on};
use crate::exit::ExitOutcome;

/// Lists the servers that share a store in a database, and which of them is the owner; or drains or resumes one.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    action: Option<NodeAction>,

    #[command(flatten)]
    how: NodeOptions,
}

#[derive(Debug, Args)]
struct NodeOptions {
    /// Print JSON, a line for each server.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum NodeAction {
    /// Drains a server before maintenance: it takes no more subtasks, and another server becomes the owner.
    ///
    /// What runs there may end, and it goes on to forward requests. That lasts until it is resumed, over restarts too.
    Drain(NodeArgs),
    /// Resumes a drained server.
    Resume(NodeArgs),
}

#[derive(Debug, Args)]
struct NodeArgs {
    /// Address of the server, as `keylane nodes` lists it.
    #[arg(value_name = "ADDRESS")]
    address: String,

    #[command(flatten)]
    how: NodeOptions,
}

/// Runs `keylane nodes`.
pub(crate) fn run(args: &NodesArgs) -> anyhow::Result<ExitOutcome> {
    let done = match &args.action {
        None => args.how.list(),
        Some(NodeAction::Drain(node)) => node.tell("drain"),
        Some(NodeAction::Resume(node)) => node.tell("resume"),
    };
    settle(done.map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl NodeArgs {
    fn tell(&self, action: &str) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.how.server)?;
        let mut url = server.url(&["v1", "nodes", action])?;
        url.query_pairs_mut().append_pair("address", &self.address);
        let request = server.request(Method::POST, url).timeout(ANSWER_WITHIN);
        let answer = block_on(server.answer(request))?;
        self.how.print(&[answer.read()?])
    }
}

impl NodeOptions {
    fn list(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.server)?;
        let page: Page<Box<RawValue>> = block_on(server.read(&["v1", "nodes"], &[]))?;
        self.print(&page.items)
    }

    fn print(&self, nodes: &[Box<RawValue>]) -> anyhow::Result<()> {
        let now = Timestamp::now();
        list::print(nodes, self.json, |nodes| {
            table(&COLUMNS, &[], &nodes.iter().map(|node| row(node, now)).collect::<Vec<_>>())
        })
    }
}

const COLUMNS: [&str; 4] = ["SERVER", "ROLE", "VERSION", "SEEN"];

fn row(node: &NodeView, now: Timestamp) -> Vec<String> {
    let role = match (node.owner, node.drained) {
        (true, false) => "owner",
        // Until another one has taken over.
        (true, true) => "owner, drained",
        (false, true) => "drained",
        (false, false) => "waits",
    };
    vec![
        plain(&node.address).into_owned(),
        role.to_owned(),
        plain(&node.version).into_owned(),
        age(node.last_contact, now),
    ]
}
