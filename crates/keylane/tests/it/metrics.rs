//! The metrics are what Prometheus reads: checked line by line, by the rules of the text format.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{eventually, soon};
use keylane::observe::Statistics;
use keylane::{Claims, Pool};

/// A page, read as strictly as the format allows.
#[derive(Debug, Default)]
struct Page {
    kinds: BTreeMap<String, String>,
    /// By name and labels.
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

impl Page {
    fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends as well");
        let mut page = Page::default();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest.split_once(' ').unwrap().0.to_owned();
                assert!(!page.kinds.contains_key(&family), "{family} comes twice");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, family, "its help comes just before");
                assert!(["counter", "gauge", "histogram"].contains(&kind));
                page.kinds.insert(name.to_owned(), kind.to_owned());
            } else {
                page.read_sample(line, &family);
            }
        }
        page
    }

    fn read_sample(&mut self, line: &str, family: &str) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match name.split_once('{') {
            None => (name, BTreeMap::new()),
            Some((name, labels)) => (name, read_labels(labels.strip_suffix('}').unwrap())),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        assert!(name.chars().all(is_name), "{line}");
        let stem = match self.kinds[family].as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or_else(|| panic!("{line}")),
            "counter" => {
                assert!(name.ends_with("_total"), "{line}");
                name
            }
            _ => name,
        };
        assert_eq!(stem, family, "the samples of a family are together");
        let value: f64 = value.parse().unwrap();
        assert!(value >= 0.0);
        let before = self.samples.insert((name.to_owned(), labels), value);
        assert!(before.is_none(), "twice: {line}");
    }

    fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(label, text)| (label.to_string(), text.to_string()));
        let sample = (name.to_owned(), labels.collect());
        *self.samples.get(&sample).unwrap_or_else(|| panic!("{sample:?} is missing"))
    }

    /// Checks that a histogram's buckets rise and end with all, and returns how many that are.
    fn check_histogram(&self, name: &str) -> f64 {
        let bucket = format!("{name}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for ((its, labels), count) in &self.samples {
            if *its == bucket {
                let le = &labels["le"];
                let le = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
                buckets.push((le, *count));
            }
        }
        buckets.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert!(buckets.len() > 10 && buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        let (last, all) = *buckets.last().unwrap();
        assert!(last.is_infinite());
        assert_eq!(self.get(&format!("{name}_count"), &[]), all);
        assert!(self.samples.contains_key(&(format!("{name}_sum"), BTreeMap::new())));
        all
    }
}

fn read_labels(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().expect("the quote is closed") {
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    other => panic!("\\{other}"),
                }),
                (at, '"') => break at,
                (_, other) => value.push(other),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none());
        text = rest[end + 1..].strip_prefix(',').unwrap_or(&rest[end + 1..]);
    }
    labels
}

fn page<K>(snapshot: &keylane::observe::Snapshot<K>, labels: &[(&str, &str)]) -> Page {
    let mut text = String::new();
    snapshot.write_prometheus(&mut text, labels).unwrap();
    Page::read(&text)
}

#[test]
fn a_page_says_what_the_snapshot_does() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(2).statistics(Statistics::Every);
        let pool = pool.capacity(500).capacity_bytes(1000).self_check(true).build().unwrap();
        for task in 0..100 {
            pool.execute(Claims::exclusive(task % 7).with_cost(1), || {}).unwrap();
        }
        pool.task(1).fallible().submit(|| Err::<(), _>(())).unwrap().wait().unwrap();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        pool.close();
        assert!(pool.execute(1, || {}).is_err());
        eventually(|| pool.inspect().snapshot(0).workers.iter().all(|worker| !worker.busy));
        let seen = pool.inspect().snapshot(3);
        let page = page(&seen, &[]);
        assert_eq!(page.get("keylane_tasks_accepted_total", &[]), 101.0);
        assert_eq!(page.get("keylane_tasks_refused_total", &[]), 1.0);
        assert_eq!(page.get("keylane_tasks_ended_total", &[("outcome", "done")]), 100.0);
        assert_eq!(page.get("keylane_tasks_ended_total", &[("outcome", "failed")]), 1.0);
        assert_eq!(page.get("keylane_tasks", &[("state", "running")]), 0.0);
        assert_eq!(page.get("keylane_capacity_tasks", &[]), 500.0);
        assert_eq!(page.get("keylane_capacity_bytes", &[]), 1000.0);
        assert_eq!(page.get("keylane_order_violations_total", &[]), 0.0);
        assert_eq!(page.check_histogram("keylane_task_wait_seconds"), 101.0);
        assert_eq!(page.check_histogram("keylane_task_run_seconds"), 101.0);
        let ran = |worker: &str| page.get("keylane_worker_tasks_total", &[("worker", worker)]);
        assert_eq!(ran("0") + ran("1"), 101.0);
        let sum = page.get("keylane_task_run_seconds_sum", &[]);
        assert!((sum - seen.run_time.sum().as_secs_f64()).abs() < 1e-9);
    });
}

#[test]
fn each_sample_has_the_caller_s_labels_whatever_is_in_them() {
    let pool = Pool::<u64>::builder().workers(1).build().unwrap();
    let name = "a \"quoted\\name\"\nof two lines, {in} braces";
    let page = page(&pool.inspect().snapshot(0), &[("pool", name), ("zone", "")]);
    let pools: BTreeSet<_> = page.samples.keys().map(|(_, labels)| &labels["pool"]).collect();
    assert_eq!(pools.into_iter().collect::<Vec<_>>(), [name]);
    assert!(page.samples.keys().all(|(_, labels)| labels["zone"].is_empty()));
}

#[test]
#[should_panic(expected = "cannot be the name of a label")]
fn a_label_s_name_is_checked() {
    let pool = Pool::<u64>::builder().workers(1).build().unwrap();
    let _ = pool.inspect().snapshot(0).write_prometheus(&mut String::new(), &[("a b", "")]);
}
