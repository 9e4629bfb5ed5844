//! `keylane store`: looking after the file of a service.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write, stdin, stdout};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use keylane_service::store::{Settings, Store};

use crate::exit::Ending;

/// Checks, copies, exports or imports the store of a service.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Args)]
struct Which {
    /// The configuration that says where the store is.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The store.
    #[arg(long, value_name = "FILE", default_value = "keylane.db")]
    store: PathBuf,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Reads everything in a store that is not in use, and says what is not what was written.
    Check {
        #[command(flatten)]
        which: Which,
    },
    /// Copies a store that is not in use into a new file.
    Backup {
        #[command(flatten)]
        which: Which,
        /// The new file.
        to: PathBuf,
    },
    /// Writes a store that is not in use as lines of JSON.
    Export {
        #[command(flatten)]
        which: Which,
        /// The file; standard output if there is none.
        to: Option<PathBuf>,
    },
    /// Reads lines of JSON, as export has written them, into a store that is not in use.
    Import {
        #[command(flatten)]
        which: Which,
        /// The file; standard input if there is none.
        from: Option<PathBuf>,
    },
}

/// Runs `keylane store`.
pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<Ending> {
    match &args.what {
        What::Check { which } => return check(which),
        What::Backup { which, to } => {
            open(which)?.backup(to)?;
        }
        What::Export { which, to } => match to {
            Some(path) => {
                let mut file = BufWriter::new(
                    File::create_new(path)
                        .with_context(|| format!("cannot make {}", path.display()))?,
                );
                open(which)?.export(&mut file)?;
                let file = file.into_inner().context("cannot write the export")?;
                file.sync_all().context("cannot write the export")?;
            }
            None => {
                let mut out = stdout().lock();
                open(which)?.export(&mut out)?;
                out.flush().context("cannot write the export")?;
            }
        },
        What::Import { which, from } => {
            let store = open_or_make(which)?;
            match from {
                Some(path) => {
                    let file = File::open(path)
                        .with_context(|| format!("cannot read {}", path.display()))?;
                    store.import(&mut BufReader::new(file))?;
                }
                None => {
                    store.import(&mut stdin().lock())?;
                }
            }
        }
    }
    Ok(Ending::Finished { failed: 0 })
}

fn check(which: &Which) -> anyhow::Result<Ending> {
    let path = super::store_of(which.config.as_deref(), &which.store)?;
    let report = Store::inspect(&path)?;
    println!(
        "{}: {} jobs ({} not over), {} subtasks, {} outcomes",
        path.display(),
        report.jobs,
        report.unfinished,
        report.subtasks,
        report.outcomes
    );
    for damage in &report.damage {
        println!("damaged: {damage}");
    }
    let damaged = report.damage.len() as u64;
    Ok(Ending::Finished { failed: damaged })
}

/// Only what is there: a misspelt name makes no store.
fn open(which: &Which) -> anyhow::Result<Store> {
    let path = super::store_of(which.config.as_deref(), &which.store)?;
    if !path.exists() {
        bail!("there is no store {}", path.display());
    }
    Ok(Store::open(&path, &Settings::default())?.0)
}

fn open_or_make(which: &Which) -> anyhow::Result<Store> {
    let path = super::store_of(which.config.as_deref(), &which.store)?;
    Ok(Store::open(&path, &Settings::default())?.0)
}
