//! `keylane tenants`: lists the tenants, with their limits and what they have.

use clap::Args;
use keylane_service::wire::{Page, TenantView};
use serde_json::value::RawValue;

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{plain, table};
use super::server_client::{ServerClient, block_on};
use crate::exit::ExitOutcome;

/// Shows the tenants that are configured or have unfinished jobs, with their limits and what they have.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct TenantsArgs {
    /// Print JSON, a line for each tenant.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane tenants`.
pub(crate) fn run(args: &TenantsArgs) -> anyhow::Result<ExitOutcome> {
    settle(args.list().map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl TenantsArgs {
    fn list(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.server)?;
        let page: Page<Box<RawValue>> = block_on(server.read(&["v1", "tenants"], &[]))?;
        list::print(&page.items, self.json, |tenants| {
            table(&COLUMNS, &[1, 2, 3, 4, 5, 6, 8], &tenants.iter().map(row).collect::<Vec<_>>())
        })
    }
}

const COLUMNS: [&str; 9] =
    ["TENANT", "JOBS", "UNFINISHED", "RUNNING", "WEIGHT", "MIN", "MAX", "RATE", "MAX WAITING"];

fn row(tenant: &TenantView) -> Vec<String> {
    let limit = |limit: Option<u64>| limit.map_or_else(String::new, |most| most.to_string());
    vec![
        plain(&tenant.name).into_owned(),
        tenant.jobs.to_string(),
        tenant.unfinished.to_string(),
        tenant.running.to_string(),
        tenant.weight.to_string(),
        tenant.min_workers.to_string(),
        limit(tenant.max_workers),
        tenant.per_second.map_or_else(String::new, |rate| format!("{rate}/s")),
        limit(tenant.max_waiting),
    ]
}
