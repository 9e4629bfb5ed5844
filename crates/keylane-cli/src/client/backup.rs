//! `keylane backup`: a copy of a running server's store.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use http_body_util::BodyExt;
use reqwest::Method;
use tempfile::NamedTempFile;

use super::error::settle;
use super::options::{AFTER_HELP, ServerArgs};
use super::server_client::{ServerClient, block_on};
use crate::exit::ExitOutcome;

/// Copies the store of a running server into a new file. The token needs the role admin.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct BackupArgs {
    /// The new file. It gets its name when the copy is complete and on the disk.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane backup`.
pub(crate) fn run(args: &BackupArgs) -> anyhow::Result<ExitOutcome> {
    settle(ServerClient::new(&args.server).and_then(|server| block_on(fetch(args, &server))))
}

async fn fetch(args: &BackupArgs, server: &ServerClient) -> anyhow::Result<ExitOutcome> {
    let name = args.file.display();
    // Before the server copies anything.
    ensure!(!args.file.try_exists()?, "{name} exists; name a new file");
    let parent = args.file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let mut part = NamedTempFile::new_in(folder)
        .with_context(|| format!("cannot create a file in {}", folder.display()))?;
    // No timeout: the server first makes its own copy, which takes as long as the store is large.
    let response =
        server.send(server.request(Method::POST, server.url(&["v1", "backup"])?)).await?;
    let mut body = reqwest::Body::from(response);
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| server.broken(&error))?;
        let Ok(piece) = frame.into_data() else { continue };
        part.write_all(&piece).with_context(|| format!("cannot write {name}"))?;
        length += piece.len();
    }
    part.as_file().sync_all().with_context(|| format!("cannot sync {name}"))?;
    part.persist_noclobber(&args.file).with_context(|| format!("cannot name {name}"))?;
    File::open(folder)?.sync_all().with_context(|| format!("cannot sync {}", folder.display()))?;
    println!(
        "{name} is written, {length} bytes; check it with: keylane store check --store {name}"
    );
    Ok(ExitOutcome::Finished { failed: 0 })
}
