//! What is shipped for operators fits what the service has: each metric that an alert or a panel asks for exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text of all sources in a folder and its subfolders.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => fs::read_to_string(path).unwrap(),
    };
    entries.map(text).collect()
}

/// Metrics that `docs/serve/operations.md` describes.
fn documented() -> BTreeSet<String> {
    let page = read("docs/serve/operations.md");
    let row = Regex::new(r"(?m)^\| `(keylane_[a-z_]+)` \|").unwrap();
    row.captures_iter(&page).map(|found| found[1].to_owned()).collect()
}

/// The metrics that a text asks for.
fn named(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\bkeylane_[a-z_]+").unwrap();
    // A histogram has several series.
    let metric = |name: &str| {
        let of_histogram = ["_seconds_bucket", "_seconds_sum", "_seconds_count"];
        let is_series = of_histogram.iter().any(|end| name.ends_with(end));
        let metric = name.rsplit_once('_').filter(|_| is_series).map_or(name, |(metric, _)| metric);
        metric.to_owned()
    };
    name.find_iter(text).map(|found| metric(found.as_str())).collect()
}

#[test]
fn the_page_describes_the_metrics_that_the_service_has() {
    let source = sources(&root().join("crates/keylane-service/src/engine"));
    // By a function with their names, or as they are written.
    let metric = Regex::new(r##"metric\(\s*"([a-z_]+)"|"# TYPE keylane_([a-z_]+) "##).unwrap();
    let name = |found: regex::Captures<'_>| {
        let name = found.get(1).or(found.get(2)).expect("it is one of the two");
        format!("keylane_{}", name.as_str())
    };
    let own: BTreeSet<_> = metric.captures_iter(&source).map(name).collect();
    assert!(own.len() > 10, "{own:?}");
    assert_eq!(own, documented());
}

#[test]
fn alerts_ask_for_metrics_that_exist() {
    let rules = read("ops/alerts.yml");
    let asked = named(&rules);
    assert!(asked.len() > 8, "{asked:?}");
    assert_eq!(asked.difference(&documented()).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(rules.matches("- alert: ").count(), rules.matches("expr: ").count());
}

#[test]
fn the_dashboard_shows_each_metric_and_no_other() {
    let dashboard: Value = serde_json::from_str(&read("ops/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked: BTreeSet<_> =
        targets.flat_map(|target| named(target["expr"].as_str().unwrap())).collect();
    assert_eq!(asked, documented());
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
}

#[test]
fn panels_do_not_lie_on_each_other() {
    let dashboard: Value = serde_json::from_str(&read("ops/grafana.json")).unwrap();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{} lies on another", panel["title"]);
            }
        }
    }
}

#[test]
fn the_unit_shows_the_service_the_files_that_it_reads() {
    let unit = read("ops/keylane.service");
    assert!(!unit.lines().any(|line| line.starts_with("ProcSubset=")), "it hides the boot id");
}
