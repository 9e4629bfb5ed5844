//! Decides what the table of each workload holds: peers, columns, figures, and sizes of runs.

use std::fmt::Write;

use crate::args::Args;
use crate::rivals::java_queue;
use crate::workloads::{
    jobs_mix, w1_tiny, w2_sleeps, w3_rollups, w4_gate, w4_queue, w5_memory, w6_predicate,
};
use crate::{Result, ours};

pub(crate) struct Spec {
    pub(crate) workload: String,
    pub(crate) peers: Vec<String>,
    /// The peers that others are divided by.
    pub(crate) against: Vec<String>,
    pub(crate) columns: Vec<Column>,
    pub(crate) figures: &'static [Figure],
    /// Multiplies the number of tasks, for quick checks.
    scale: f64,
}

#[derive(Default)]
pub(crate) struct Column {
    pub(crate) title: String,
    flags: Vec<(&'static str, String)>,
    /// Or the milliseconds of a run that lasts for a time.
    tasks: usize,
    is_timed: bool,
    /// The peers that cannot do it.
    not: &'static [&'static str],
}

/// A number of each run that gets a table of its own.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Whether `against` is divided by it, as in "times as fast".
    pub(crate) is_compared: bool,
}

const fn figure(name: &'static str, title: &'static str, is_compared: bool) -> Figure {
    Figure { name, title, is_compared }
}

const W1_FIGURES: &[Figure] = &[
    figure("ns_per_task", "nanoseconds per task", true),
    figure("cpu_ns_per_task", "CPU nanoseconds per task, all threads", false),
];
const W2_FIGURES: &[Figure] = &[
    figure("ratio", "makespan over the lower bound", false),
    figure("secs", "makespan, seconds", false),
    figure("mean_sleep_us", "mean measured sleep, microseconds", false),
];
const W3_FIGURES: &[Figure] = &[figure("ns_per_task", "nanoseconds per task", true)];
const W4_FIGURES: &[Figure] = &[
    figure("items_m_per_sec", "million items per second", false),
    figure("ns_per_item", "nanoseconds per item", true),
    figure("cpu_ns_per_item", "CPU nanoseconds per item, all threads", false),
    figure("jain", "Jain index of the 16 producers", false),
    figure("median_us", "median time of a put, microseconds", false),
    figure("p99_over_median", "99th percentile of the puts over their median", false),
    figure("max_over_median", "longest put over the median", false),
];
const W4_GATE_FIGURES: &[Figure] = &[figure("ns", "nanoseconds", true)];
const W5_FIGURES: &[Figure] = &[
    figure("heap_bytes", "live heap bytes per key or task", false),
    figure("rss_bytes", "resident bytes per key or task", false),
    figure("fixed_mib", "MiB held by the pool itself, for its capacity", false),
];

const W6_FIGURES: &[Figure] = &[
    figure("ns_per_task", "nanoseconds per task, submitted and run", true),
    figure("submit_ns", "nanoseconds per submission", true),
];

const JOBS_FIGURES: &[Figure] = &[
    figure("ns_per_task", "nanoseconds per subtask or task", true),
    figure("cpu_ns_per_task", "CPU nanoseconds per subtask or task, all threads", false),
    figure("peak_mib", "MiB of memory that the run added, at its peak", false),
];
const JOBS_MIX_FIGURES: &[Figure] = &[
    figure("mean_ms", "mean time of a job, milliseconds", false),
    figure("over_srpt", "the same over SRPT's, in virtual time", false),
    figure("p99_ms", "99th percentile, milliseconds", false),
    figure("longest_ms", "longest, milliseconds", false),
    figure("srpt_ms", "mean time under SRPT in virtual time, milliseconds", false),
];
const JOBS_START_FIGURES: &[Figure] = &[
    figure("p50_us", "median wait, microseconds", false),
    figure("p90_us", "90th percentile, microseconds", false),
    figure("p99_us", "99th percentile, microseconds", false),
    figure("max_us", "longest, microseconds", false),
];

impl Spec {
    pub(crate) fn new(workload: &str, args: &mut Args) -> Result<Spec> {
        let (peers, against): (Vec<&str>, &[&str]) = match workload {
            "w1" => ([ours::W1, w1_tiny::RIVALS].concat(), &["shard", "strand-dashmap"]),
            "w2" => ([ours::W2, w2_sleeps::RIVALS].concat(), &[]),
            "w3" => ([ours::W3, w3_rollups::RIVALS].concat(), &["strand-dashmap", "grouped"]),
            "w4" => ([ours::W4, w4_queue::RIVALS].concat(), &["crossbeam", "java-abq-fair"]),
            "w4-gate" => {
                let against = &["std-mutex", "park-unpark"];
                ([ours::W4_GATE, w4_gate::RIVALS].concat(), against)
            }
            "jobs" => (ours::JOBS.to_vec(), &["keylane-submit-many", "keylane-execute-many"]),
            "jobs-mix" => ([ours::JOBS_MIX, jobs_mix::RIVALS].concat(), &[]),
            "jobs-start" => (ours::JOBS_START.to_vec(), &[]),
            "w5" => ([ours::W5, w5_memory::RIVALS].concat(), &[]),
            "w6" => ([ours::W6, w6_predicate::RIVALS].concat(), &["grouped"]),
            _ => return Err(format!("there is no workload `{workload}`").into()),
        };
        let (mut columns, figures) = match workload {
            "w1" => (w1_columns(args)?, W1_FIGURES),
            "w2" => (w2_columns(), W2_FIGURES),
            "w3" => (w3_columns(), W3_FIGURES),
            "w4" => (w4_columns(), W4_FIGURES),
            "w4-gate" => (w4_gate_columns(), W4_GATE_FIGURES),
            "jobs" => (jobs_columns(), JOBS_FIGURES),
            "jobs-mix" => (jobs_mix_columns(), JOBS_MIX_FIGURES),
            "jobs-start" => (jobs_start_columns(), JOBS_START_FIGURES),
            "w5" => (w5_columns(), W5_FIGURES),
            _ => (w6_columns(), W6_FIGURES),
        };
        if let Some(titles) = args.take_list("columns") {
            columns.retain(|column| titles.contains(&column.title));
        }
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut peers = args.take_list("peers").unwrap_or_else(|| owned(&peers));
        if !java_queue::is_there() {
            peers.retain(|peer| !peer.starts_with("java-"));
        }
        let mut against = args.take_list("against").unwrap_or_else(|| owned(against));
        against.retain(|peer| peers.contains(peer));
        let scale = args.take("scale", 1.0)?;
        Ok(Spec { workload: workload.to_owned(), peers, against, columns, figures, scale })
    }

    /// Whether the peer can do what the column asks for.
    pub(crate) fn is_possible(&self, column: usize, peer: usize) -> bool {
        let (column, peer) = (&self.columns[column], self.peers[peer].as_str());
        !column.not.contains(&peer)
    }

    /// The arguments of one run.
    pub(crate) fn command(&self, column: usize, peer: usize) -> Vec<String> {
        let (column, peer) = (&self.columns[column], &self.peers[peer]);
        let tasks = most_tasks(&self.workload, peer).min(column.tasks) as f64 * self.scale;
        let mut words = vec![self.workload.clone()];
        let mut flag = |name: &str, value: &str| {
            words.extend([format!("--{name}"), value.to_owned()]);
        };
        flag("peer", peer);
        if column.is_timed {
            let millis = column.tasks as f64 * self.scale;
            flag("millis", &(millis as usize).to_string());
        } else {
            flag("tasks", &(tasks as usize).to_string());
        }
        for (name, value) in &column.flags {
            flag(name, value);
        }
        words
    }
}

/// Peers so slow, or so hungry for memory without a bound, that they get fewer tasks than others.
fn most_tasks(workload: &str, peer: &str) -> usize {
    match (workload, peer) {
        ("w1", "tokio-mutex-fair") => 2_000_000,
        ("jobs", "keylane-job-keyed" | "keylane-job-unsized") => 2_000_000,
        // Quadratic in its backlog, so that more tasks would look worse still.
        ("w3", "grouped" | "grouped-window64") => 50_000,
        _ => usize::MAX,
    }
}

fn w1_columns(args: &mut Args) -> Result<Vec<Column>> {
    let numbers = |list: Option<Vec<String>>, default: &[usize]| match list {
        Some(words) => words.iter().map(|word| word.parse()).collect::<std::result::Result<_, _>>(),
        None => Ok(default.to_vec()),
    };
    let producers: Vec<usize> = numbers(args.take_list("producers"), &[1, 2, 4])?;
    let keys: Vec<usize> = numbers(args.take_list("keys"), &[1, 1000, 1_000_000])?;
    let pairs = producers.iter().flat_map(|&p| keys.iter().map(move |&k| (p, k)));
    Ok(pairs
        .map(|(producers, keys)| Column {
            title: format!("{}, {}", count(producers, "producer"), count(keys, "key")),
            flags: vec![("producers", producers.to_string()), ("keys", keys.to_string())],
            tasks: 5_000_000,
            ..Column::default()
        })
        .collect())
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn w2_columns() -> Vec<Column> {
    let column = |zipf: &str| Column {
        title: format!("Zipf {zipf}"),
        flags: vec![("zipf", zipf.to_owned())],
        tasks: 20_000,
        ..Column::default()
    };
    vec![column("1"), column("0.5")]
}

fn w3_columns() -> Vec<Column> {
    let column = |title: &str, every: &str| Column {
        title: title.to_owned(),
        flags: vec![("keys", "1000".to_owned()), ("every", every.to_owned())],
        tasks: 5_000_000,
        ..Column::default()
    };
    vec![column("1 % rollups", "100"), column("no rollups", "0")]
}

/// Milliseconds of a run.
const W4_TIME: usize = 1000;

fn w4_columns() -> Vec<Column> {
    let column = |title: &str, producers: usize, consumers: usize, is_slow: bool| Column {
        title: title.to_owned(),
        flags: vec![
            ("producers", producers.to_string()),
            ("workers", consumers.to_string()),
            ("slow", is_slow.to_string()),
        ],
        tasks: W4_TIME,
        is_timed: true,
        not: if consumers == 1 { &[] } else { w4_queue::ONE_CONSUMER },
    };
    vec![
        column("1x1", 1, 1, false),
        column("2x2", 2, 2, false),
        column("4x4", 4, 4, false),
        column("16x16", 16, 16, false),
        column("4x1", 4, 1, false),
        column("16x1 slow", 16, 1, true),
    ]
}

fn w4_gate_columns() -> Vec<Column> {
    let column = |title: &str, is_handed: bool, not| Column {
        title: title.to_owned(),
        flags: vec![("handed", is_handed.to_string())],
        tasks: if is_handed { 200_000 } else { 20_000_000 },
        not,
        ..Column::default()
    };
    vec![
        column("acquire and release", false, &["park-unpark"]),
        column("hand-off", true, &["std-mutex"]),
    ]
}

fn w5_columns() -> Vec<Column> {
    let column = |title: &str, what: &str, keys: &str| Column {
        title: title.to_owned(),
        flags: vec![("what", what.to_owned()), ("keys", keys.to_owned())],
        tasks: 1_000_000,
        ..Column::default()
    };
    vec![
        column("idle key", "idle-keys", "1000000"),
        column("queued task, 1000 keys", "queued-tasks", "1000"),
        column("queued task, 1000000 keys", "queued-tasks", "1000000"),
    ]
}

fn w6_columns() -> Vec<Column> {
    let column = |unfinished: usize, tasks: usize| Column {
        title: format!("{unfinished} unfinished"),
        flags: vec![("unfinished", unfinished.to_string())],
        tasks,
        ..Column::default()
    };
    vec![column(100, 20_000), column(1000, 10_000), column(10_000, 5000)]
}

fn jobs_columns() -> Vec<Column> {
    let column =
        |title: &str, tasks: usize| Column { title: title.to_owned(), tasks, ..Column::default() };
    vec![column("1 million", 1_000_000), column("10 million", 10_000_000)]
}

fn jobs_mix_columns() -> Vec<Column> {
    let column = |percent: usize| Column {
        title: format!("{percent} %"),
        flags: vec![("load", format!("{}", percent as f64 / 100.0))],
        tasks: 5000,
        ..Column::default()
    };
    [50, 70, 80, 90, 95].map(column).into()
}

fn jobs_start_columns() -> Vec<Column> {
    let column = |title: &str, micros: usize| Column {
        title: title.to_owned(),
        flags: vec![("micros", micros.to_string())],
        tasks: 1000,
        ..Column::default()
    };
    vec![column("200 µs", 200), column("1 ms", 1000), column("tiny", 0)]
}

const WORKLOADS: [&str; 10] =
    ["w1", "w2", "w3", "w4", "w4-gate", "w5", "w6", "jobs", "jobs-mix", "jobs-start"];

/// The peers of all workloads, one workload a line.
pub(crate) fn list_peers() -> String {
    let mut text = String::new();
    for workload in WORKLOADS {
        let spec = Spec::new(workload, &mut Args::none()).expect("the workload exists");
        writeln!(text, "{workload}: {}", spec.peers.join(" ")).expect("writing to a string");
    }
    text
}
