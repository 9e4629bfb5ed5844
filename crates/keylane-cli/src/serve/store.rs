//! `keylane store`: maintenance of a service's store.

use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use keylane_service::store::{Changes, ReadError, RecoveredJobs, Store, StoreSettings};
use keylane_service::{JobId, JobNumber};

use super::config::place_of_store;
use super::data_folder::data_folder;
use super::store_place::StorePlace;
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

    /// The store: a file, or the address of a PostgreSQL database. The default is that of a server with a
    /// configuration; one without has keylane/keylane.db in the user's data directory (XDG_DATA_HOME, or
    /// ~/.local/share).
    #[arg(long, value_name = "FILE|ADDRESS", default_value = "keylane.db")]
    store: PathBuf,
}

impl StoreLocationArgs {
    fn place(&self) -> anyhow::Result<StorePlace> {
        Ok(place_of_store(self.config.as_deref(), &self.store)?.at_once())
    }
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
    /// Creates or changes the tables of a store in PostgreSQL, as a server of this version does when it starts.
    Migrate {
        #[command(flatten)]
        which: StoreLocationArgs,
        /// Only print the statements that would be executed.
        #[arg(long)]
        plan: bool,
    },
    /// Removes a damaged job from a store that is not in use, so that the keys and jobs that wait for it go on.
    Remove {
        #[command(flatten)]
        which: StoreLocationArgs,
        /// Its number, as `keylane store check` names it, or its id.
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
        StoreCommand::Migrate { which, plan } => migrate(which, *plan)?,
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
    let place = which.place()?;
    let report = match place.is_database() {
        true => open(which)?.check()?,
        false if !place.path.exists() => bail!(missing(&place)),
        false => Store::inspect(&place.path)?,
    };
    println!(
        "{}: {} jobs ({} not over), {} subtasks, {} outcomes",
        place.shown, report.jobs, report.unfinished, report.subtasks, report.outcomes
    );
    for damage in &report.damage {
        println!("damaged: {damage}");
    }
    let damaged = report.damage.len() as u64;
    Ok(ExitOutcome::Finished { failed: damaged })
}

#[cfg(feature = "postgres")]
fn migrate(which: &StoreLocationArgs, only_plan: bool) -> anyhow::Result<()> {
    let place = which.place()?;
    let Some(database) = place.postgres() else { bail!("{IN_FILE}") };
    let plan = if only_plan { database.migration_plan()? } else { database.migrate()? };
    let mut out = stdout().lock();
    for step in &plan {
        writeln!(out, "-- version {}", step.version)?;
        if only_plan {
            writeln!(out, "{}", step.sql.trim())?;
        }
    }
    if plan.is_empty() {
        writeln!(out, "-- nothing to do: the tables have this version")?;
    }
    Ok(())
}

#[cfg(not(feature = "postgres"))]
fn migrate(which: &StoreLocationArgs, _only_plan: bool) -> anyhow::Result<()> {
    which.place()?;
    bail!("{IN_FILE}")
}

/// The message about a store that needs no migration by hand.
const IN_FILE: &str = "the store is a file, which the server brings forward when it opens it; give --store postgres://...";

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
        None => {
            let number = job.parse::<u64>().ok();
            JobNumber(number.with_context(|| {
                format!(
                    "JOB: `{job}` is neither a job's number nor its id; write one that `keylane store check` names"
                )
            })?)
        }
    };
    let (store, mut recovered) = open_existing(which)?;
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
    Ok(open_existing(which)?.0)
}

fn open_existing(which: &StoreLocationArgs) -> anyhow::Result<(Store, RecoveredJobs)> {
    let place = which.place()?;
    #[cfg(feature = "postgres")]
    if let Some(database) = place.postgres() {
        let has_none = database.migration_plan()?.first().is_some_and(|step| step.version == 1);
        if has_none {
            bail!("there is no store in {}", place.shown);
        }
    }
    if !place.is_database() && !place.path.exists() {
        bail!(missing(&place));
    }
    open_at(&place)
}

/// Returns the message about a store in a file that does not exist, with the store of a server without a
/// configuration if there is one.
fn missing(place: &StorePlace) -> String {
    let other = data_folder().ok().map(|folder| folder.join("keylane.db"));
    let other = other.filter(|path| path.exists());
    let file = other.map_or_else(|| "FILE".to_owned(), |path| path.display().to_string());
    format!("there is no store {}; give one, as in --store {file}", place.shown)
}

fn open_at(place: &StorePlace) -> anyhow::Result<(Store, RecoveredJobs)> {
    Ok(Store::open(&place.path, &place.settings(StoreSettings::default()))?)
}

fn open_or_make(which: &StoreLocationArgs) -> anyhow::Result<Store> {
    Ok(open_at(&which.place()?)?.0)
}
