//! Reload on SIGHUP: reads tokens, certificates, kinds, tenants and webhooks again, without ending attempts or
//! connections.

use anyhow::Context;
use keylane_service::http::{HttpServer, TlsIdentity};
use keylane_service::{Kind, LeaseRunner, Service};

use super::config::Config;
use super::config_source::ConfigSource;
use super::kind_table::KindTable;
use crate::message::say;

/// The kinds that a server has, with the tables that they were made of.
#[derive(Debug)]
pub(super) struct KindTables(Vec<(String, KindTable, Kind)>);

impl KindTables {
    pub(super) fn of(config: &Config) -> anyhow::Result<Self> {
        KindTables::following(config, &KindTables(Vec::new()))
    }

    /// Kinds of a configuration. A kind with an unchanged table keeps its worker processes.
    fn following(config: &Config, before: &KindTables) -> anyhow::Result<Self> {
        let made = config.kinds()?.into_iter().map(|(name, table, kind)| {
            let same = before.0.iter().find(|(other, was, _)| *other == name && *was == table);
            let kind = same.map_or(kind, |(_, _, kept)| kept.clone());
            (name, table, kind)
        });
        Ok(KindTables(made.collect()))
    }

    /// Makes a runner run these kinds.
    pub(super) fn run_by(&self, runner: &LeaseRunner) {
        runner.set_kinds(self.0.iter().map(|(name, _, kind)| (&**name, kind)));
    }

    pub(super) fn all(&self) -> Vec<(String, Kind)> {
        self.0.iter().map(|(name, _, kind)| (name.clone(), kind.clone())).collect()
    }
}

/// State that a reload needs.
#[derive(Debug)]
pub(super) struct ReloadState {
    pub(super) source: ConfigSource,
    /// Configuration at the start of the server.
    pub(super) server: Config,
    /// The kinds that there are.
    pub(super) kinds: KindTables,
    /// Runs the kinds with leases and handlers.
    pub(super) runner: LeaseRunner,
}

impl ReloadState {
    /// Reads the configuration anew. If something is wrong with it all stays as it is.
    pub(super) async fn run(&mut self, service: &Service, server: &HttpServer) {
        if self.source.file.is_none() {
            return say("nothing to reload: there is no configuration file; all goes on as before");
        }
        match self.reload(service, server).await {
            Ok(()) => say("reloaded tokens, certificates, kinds, tenants and webhooks"),
            Err(error) => say(format_args!("not reloaded, and all goes on as before: {error:#}")),
        }
    }

    /// Reads the certificate anew.
    pub(super) fn certificate(&self) -> anyhow::Result<Option<TlsIdentity>> {
        Ok(self.source.read()?.serving()?.tls)
    }

    async fn reload(&mut self, service: &Service, server: &HttpServer) -> anyhow::Result<()> {
        let config = self.source.read()?;
        let serving = config.serving()?;
        config.warn();
        let webhooks = config.webhooks()?;
        let kinds = KindTables::following(&config, &self.kinds)?;
        // The number of slots changes only at the next start.
        let tenants = config.tenants(self.server.slots())?;
        server.reload(serving.tokens, serving.tls).context("server")?;
        service.reload_tenants(tenants);
        service.reload_webhooks(webhooks);
        kinds.run_by(&self.runner);
        service.reload_kinds(kinds.all()).await;
        self.kinds = kinds;
        for name in self.server.other_settings(&config) {
            say(format_args!("{name} takes effect at the next start"));
        }
        Ok(())
    }
}
