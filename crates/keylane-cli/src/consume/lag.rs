//! `keylane lag`: lag of consumers, from the journal, the brokers or a running consumer.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use keylane_stream::journal::Journal;
use reqwest::{ClientBuilder, Url};

use super::kafka;
use super::status::{PartitionLag, table};
use crate::exit::ExitOutcome;
use crate::features;
use crate::http_client;

/// Shows the lag of consumers, and the reasons for it.
#[derive(Debug, Args)]
#[command(after_long_help = kafka::note(), mut_args(features::marked))]
pub(crate) struct LagArgs {
    /// journal:PATH for the stored progress of its groups; kafka://HOST:PORT/TOPIC for the brokers'
    /// view of a --group; or http://ADDRESS of a keylane consume --listen, which also knows the
    /// waiting records.
    #[arg(value_name = "OF")]
    of: String,

    /// Only this group of the journal; the group of a topic.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// A setting of the Kafka client, by librdkafka's name; can be given several
    /// times.
    #[arg(short = 'X', long, value_name = "NAME=VALUE")]
    client: Vec<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `keylane lag`.
pub(crate) fn run(args: &LagArgs) -> anyhow::Result<ExitOutcome> {
    let lags = match args.of.split_once(':') {
        Some(("journal", path)) => stored(path, args.group.as_deref())?,
        Some(("kafka", _)) => {
            let group =
                args.group.as_deref().context("add --group: a topic has no lag of its own")?;
            kafka::lags(&args.of, &args.client, group)?
        }
        Some(("http" | "https", _)) => asked(&args.of)?,
        _ => bail!(
            "`{}` is neither a journal, a topic nor a consumer; write journal:PATH, \
             kafka://HOST:PORT/TOPIC or http://ADDRESS",
            args.of
        ),
    };
    match args.json {
        true => println!("{}", serde_json::to_string(&lags)?),
        false if lags.is_empty() => println!("no group has stored any progress"),
        false => print!("{}", table(&lags)),
    }
    Ok(ExitOutcome::Finished { failed: 0 })
}

fn stored(path: &str, group: Option<&str>) -> anyhow::Result<Vec<PartitionLag>> {
    let outline = Journal::info(path)?;
    let wanted = |name: &str| group.is_none_or(|group| group == name);
    let of = |(name, progress): (String, keylane_stream::tracker::Progress)| {
        let gaps = progress.incomplete().len() as u64;
        let above = progress.end() > progress.watermark();
        PartitionLag {
            partition: path.to_owned(),
            topic: path.to_owned(),
            group: Some(name),
            committed: progress.watermark().get(),
            highest_done: progress.end().get(),
            end: Some(outline.end.get()),
            // The watermark itself is one, if anything above it is done.
            incomplete: gaps + u64::from(above),
            live: None,
        }
    };
    let lags: Vec<_> =
        outline.groups.into_iter().filter(|(name, _)| wanted(name)).map(of).collect();
    if let (Some(group), true) = (group, lags.is_empty()) {
        bail!("the group `{group}` has stored nothing in {path}");
    }
    Ok(lags)
}

fn asked(address: &str) -> anyhow::Result<Vec<PartitionLag>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let url = format!("{}/lag", address.trim_end_matches('/'));
        let url = Url::parse(&url).with_context(|| format!("`{address}` is no address"))?;
        let set = |client: ClientBuilder| client.timeout(Duration::from_secs(10));
        let client = http_client::client_for(&url, set)?;
        let answer = client.get(url).send().await;
        let answer = answer.with_context(|| format!("cannot ask {address}; is it --listen?"))?;
        let status = answer.status();
        let body = answer.bytes().await?;
        if !status.is_success() {
            bail!("{address} answers {status}: {}", String::from_utf8_lossy(&body).trim());
        }
        serde_json::from_slice(&body).with_context(|| format!("{address} is no consumer's"))
    })
}
