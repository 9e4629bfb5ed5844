//! Lines on standard output when a server is ready: its address, its dashboard, and what to type next.

use std::io::{Write, stdout};
use std::net::SocketAddr;

use keylane_service::NodeAddress;
use keylane_service::http::{HttpServer, HttpSettings};

use super::config_source::ConfigSource;
use super::kind_arg::KindArg;

/// Address at which the client commands look for a server.
const CLIENTS_DEFAULT_PORT: u16 = 7420;

/// A server that is ready.
pub(super) struct Announcement<'a> {
    pub(super) source: &'a ConfigSource,
    pub(super) store: &'a str,
    pub(super) server: &'a HttpServer,
    pub(super) settings: &'a HttpSettings,
}

/// Prints that requests are forwarded to the server at `owner`, which owns the store.
pub(super) fn print_forwarding(listening: SocketAddr, owner: &NodeAddress) {
    let scheme = if owner.is_encrypted() { "https" } else { "http" };
    let mut out = stdout();
    let _ = writeln!(
        out,
        "keylane: listening on {scheme}://{listening}\nkeylane: the server at {owner} owns the store; requests are forwarded to it"
    );
    let _ = out.flush();
}

impl Announcement<'_> {
    /// Prints it. Nothing depends on its being read, so a write error is ignored.
    pub(super) fn print(&self) {
        let mut out = stdout();
        for line in self.lines() {
            let _ = writeln!(out, "keylane: {line}");
        }
        // The parent process may read a pipe.
        let _ = out.flush();
    }

    fn lines(&self) -> Vec<String> {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        let address = format!("{scheme}://{}", self.server.address());
        let mut lines = vec![
            format!("listening on {address}"),
            format!("dashboard: {address}/"),
            format!("store: {}", self.store),
        ];
        // The author of a configuration file needs no example.
        if self.source.file.is_none() {
            lines.extend(self.next_steps(&address));
        }
        lines
    }

    /// What a user can type next.
    fn next_steps(&self, address: &str) -> Vec<String> {
        let example = KindArg::example();
        let kind = self.source.kinds.first().unwrap_or(&example);
        let server = match self.server.address().port() {
            CLIENTS_DEFAULT_PORT => String::new(),
            _ => format!(" --server {address}"),
        };
        let submit = format!("keylane submit {}{server} --key ann --wait", kind.name);
        let mut lines = Vec::new();
        if self.source.is_example() {
            lines.push(format!(
                "the only kind is an example: `{}` runs `cat`; add your own with --kind NAME=COMMAND, or \
                 write a configuration with keylane serve --init",
                kind.name
            ));
        }
        lines.push(format!("try in another terminal: {submit}"));
        lines
    }
}
