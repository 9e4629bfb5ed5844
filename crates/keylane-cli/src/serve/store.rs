//! `keylane store`: maintenance of a service's store.

use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use keylane_service::store::{Changes, ReadError, Store, StoreSettings};
use keylane_service::{JobId, JobNumber};

use super::config::store_path;
use crate::exit::ExitOutcome;
use crate::standard_streams::stdin;

/// Checks, copies, exports or imports the store of a service.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    what: StoreCommand,
}

#[derive(Debug, Args)]
struct StoreLocationArgs {
    /// Configuration with the path of the store.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The store.
    #[arg(long, value_name = "FILE", default_value = "keylane.db")]
    store: PathBuf,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Reads and verifies everything in a store that is not in use, and lists damage.
    Check {
        #[command(flatten)]
        which: StoreLocationArgs,
    },
    /// Copies a store that is not in use into a new file.
    Backup {
        #[command(flatten)]
        which: StoreLocationArgs,
        /// The new file.
        to: PathBuf,
    },
    /// Writes a store that is not in use as lines of JSON.
    Export {
        #[command(flatten)]
        which: StoreLocationArgs,
        /// Output file; standard output if absent.
        to: Option<PathBuf>,
    },
    /// Reads lines of JSON, as export has written them, into a store that is not in use.
    Import {
        #[command(flatten)]
        which: StoreLocationArgs,
        /// Input file; standard input if absent.
        from: Option<PathBuf>,
    },
    /// Copies all readable data of a damaged store that is not in use into a new one, and lists the
    /// rest.
    Salvage {
        /// The damaged store, which stays as it is.
        from: PathBuf,
        /// The new one.
        to: PathBuf,
    },
    /// Removes a damaged job from a store that is not in use, so that the keys and jobs that wait for it go on.
    Remove {
        #[command(flatten)]
        which: StoreLocationArgs,
        /// Its number or its id.
        job: String,
    },
}

/// Runs `keylane store`.
pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<ExitOutcome> {
    match &args.what {
        StoreCommand::Check { which } => return check(which),
        StoreCommand::Backup { which, to } => {
            open(which)?.backup(to)?;
        }
        StoreCommand::Export { which, to } => match to {
            Some(path) => {
                open(which)?.export_file(path)?;
            }
            None => {
                let mut out = stdout().lock();
                open(which)?.export(&mut out)?;
                out.flush().context("cannot write the export")?;
            }
        },
        StoreCommand::Salvage { from, to } => return salvage(from, to),
        StoreCommand::Remove { which, job } => remove(which, job)?,
        StoreCommand::Import { which, from } => {
            // Before the store, so that no empty one is left if there is no input.
            let mut input: Box<dyn BufRead> = match from {
                Some(path) => {
                    let cannot = || format!("cannot read {}", path.display());
                    Box::new(BufReader::new(File::open(path).with_context(cannot)?))
                }
                None => Box::new(stdin()?.lock()),
            };
            open_or_make(which)?.import(&mut input)?;
        }
    }
    Ok(ExitOutcome::Finished { failed: 0 })
}

fn check(which: &StoreLocationArgs) -> anyhow::Result<ExitOutcome> {
    let path = store_path(which.config.as_deref(), &which.store)?;
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
    Ok(ExitOutcome::Finished { failed: damaged })
}

fn salvage(from: &Path, to: &Path) -> anyhow::Result<ExitOutcome> {
    let salvaged = Store::salvage(from, to, now_ms())?;
    for loss in &salvaged.losses {
        println!("lost: {loss}");
    }
    println!(
        "{}: {} jobs, {} of them damaged and set aside; {} losses",
        to.display(),
        salvaged.jobs,
        salvaged.damaged_jobs,
        salvaged.losses.len()
    );
    Ok(ExitOutcome::Finished { failed: salvaged.losses.len() as u64 })
}

fn remove(which: &StoreLocationArgs, job: &str) -> anyhow::Result<()> {
    let number = match JobId::parse(job) {
        Some(id) => id.number(),
        None => JobNumber(job.parse().with_context(|| format!("{job} is no job's number or id"))?),
    };
    let path = store_path(which.config.as_deref(), &which.store)?;
    if !path.exists() {
        bail!("there is no store {}", path.display());
    }
    let (store, mut recovered) = Store::open(&path, &StoreSettings::default())?;
    let mut is_damaged = matches!(store.job(number), Err(ReadError::Damaged(_)));
    while !is_damaged {
        match recovered.next_job() {
            Ok(None) => break,
            Ok(Some(_)) => {}
            Err(ReadError::Damaged(damage)) => is_damaged = damage.job() == Some(number),
            Err(error) => return Err(error.into()),
        }
    }
    if !is_damaged {
        bail!("job {job} is not damaged; cancel or remove it through the server");
    }
    let mut changes = Changes::new();
    changes.remove_damaged(number, now_ms());
    store.submit(changes).wait()?;
    Ok(())
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Opens an existing store only: a misspelt name must not create one.
fn open(which: &StoreLocationArgs) -> anyhow::Result<Store> {
    let path = store_path(which.config.as_deref(), &which.store)?;
    if !path.exists() {
        bail!("there is no store {}", path.display());
    }
    Ok(Store::open(&path, &StoreSettings::default())?.0)
}

fn open_or_make(which: &StoreLocationArgs) -> anyhow::Result<Store> {
    let path = store_path(which.config.as_deref(), &which.store)?;
    Ok(Store::open(&path, &StoreSettings::default())?.0)
}
