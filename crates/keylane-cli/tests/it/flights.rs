//! A parallel run over real flights gives what a plain sequential one gives,
//! aircraft by aircraft and in order: on a week's slice, and on the whole year
//! where its file is at hand.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{feed, finish, keylane};

const FIELDS: [&str; 6] =
    ["{year}-{month}-{day}", "{tailnum}", "{carrier}{flight}", "{origin}", "{dest}", "{dep_time}"];

#[test]
fn a_process_per_flight_equals_a_sequential_run() {
    let week = week();
    let state = state_folder();
    let mut words = table_words();
    words.extend(
        ["--", "sh", script().to_str().unwrap(), state.path().to_str().unwrap()].map(String::from),
    );
    words.extend(FIELDS.map(String::from));
    let outcome = feed(keylane(words), week.as_bytes());
    outcome.expect(0, &[]);
    assert_same(&outcome.stdout, &sequential(&week));
}

#[test]
fn workers_equal_a_sequential_run() {
    let week = week();
    assert_same(&with_workers(&week), &sequential(&week));
}

#[test]
fn the_model_equals_a_sequential_run() {
    let week = week();
    assert!(sequential(&week) == model(&week));
}

#[test]
fn a_whole_year_with_workers_equals_the_model() {
    let Some(year) = year() else { return };
    let answers = with_workers(&year);
    assert_eq!(answers.lines().count(), 336_776);
    assert_same(&answers, &model(&year));
}

fn table_words() -> Vec<String> {
    ["-j4", "--csv", "--header", "--key", "tailnum", "--null-value", "NA"].map(String::from).into()
}

fn with_workers(flights: &str) -> String {
    let state = state_folder();
    let mut words = table_words();
    words.extend(["--worker", "--worker-line", &FIELDS.join(" ")].map(String::from));
    words.extend(
        ["--", "sh", script().to_str().unwrap(), state.path().to_str().unwrap()].map(String::from),
    );
    let outcome = feed(keylane(words), flights.as_bytes());
    outcome.expect(0, &[]);
    outcome.stdout
}

/// The same script, alone, one flight after the other.
fn sequential(flights: &str) -> String {
    let state = state_folder();
    let lines: String = rows(flights).map(|row| row.line() + "\n").collect();
    let mut command = Command::new("sh");
    command.arg(script()).arg(state.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = command.spawn().unwrap();
    let mut stdin = shell.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
        finish(shell).stdout
    })
}

/// What the script does, in other words and without files.
fn model(flights: &str) -> String {
    let mut seen: HashMap<&str, (String, &str)> = HashMap::new();
    let mut answers = String::new();
    for row in rows(flights) {
        let known = row.aircraft != "NA";
        let what = if !known {
            "unknown aircraft".to_owned()
        } else if row.departed == "NA" {
            "cancelled".to_owned()
        } else {
            match seen.insert(row.aircraft, (row.day.clone(), row.to)) {
                Some((day, at)) if day == row.day && at != row.from => {
                    format!("departs from {}, last seen at {at}", row.from)
                }
                _ => "ok".to_owned(),
            }
        };
        let aircraft = if known { row.aircraft } else { "-" };
        answers +=
            &format!("{} {aircraft} {} {}-{} {what}\n", row.day, row.flight, row.from, row.to);
    }
    answers
}

struct Row<'t> {
    day: String,
    aircraft: &'t str,
    flight: String,
    from: &'t str,
    to: &'t str,
    departed: &'t str,
}

impl Row<'_> {
    fn line(&self) -> String {
        let Self { day, aircraft, flight, from, to, departed } = self;
        format!("{day} {aircraft} {flight} {from} {to} {departed}")
    }
}

/// The rows, cut at commas: there is no quote in this data.
fn rows(flights: &str) -> impl Iterator<Item = Row<'_>> {
    assert!(!flights.contains('"'));
    flights.lines().skip(1).map(|line| {
        let f: Vec<_> = line.split(',').collect();
        Row {
            day: [f[0], f[1], f[2]].join("-"),
            aircraft: f[11],
            flight: [f[9], f[10]].concat(),
            from: f[12],
            to: f[13],
            departed: f[3],
        }
    })
}

/// Same answers per aircraft in the same order; flights of unknown aircraft
/// have no order, so only which there are counts.
#[track_caller]
fn assert_same(parallel: &str, sequential: &str) {
    let (parallel, sequential) = (by_aircraft(parallel), by_aircraft(sequential));
    assert_eq!(parallel.len(), sequential.len());
    for (aircraft, answers) in &sequential {
        assert_eq!(parallel.get(aircraft), Some(answers), "{aircraft}");
    }
}

fn by_aircraft(answers: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in answers.lines() {
        all.entry(line.split(' ').nth(1).unwrap()).or_default().push(line);
    }
    if let Some(unknown) = all.get_mut("-") {
        unknown.sort_unstable();
    }
    all
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn script() -> PathBuf {
    root().join("examples/flights/follow.sh")
}

fn week() -> String {
    std::fs::read_to_string(root().join("examples/data/flights-2013-week1.csv")).unwrap()
}

/// In memory where that is possible: the script opens files a million times.
fn state_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The whole file, if it is at hand; it must be if KEYLANE_REQUIRE_PARTS is 1.
fn year() -> Option<String> {
    let elsewhere = env::var_os("KEYLANE_FLIGHTS").map(PathBuf::from);
    let path = elsewhere.unwrap_or_else(|| root().join("../shared/data/flights.csv.gz"));
    let Ok(file) = File::open(&path) else {
        let notice =
            format!("the year's flights are not at {} (see KEYLANE_FLIGHTS)", path.display());
        assert!(
            env::var_os("KEYLANE_REQUIRE_PARTS").is_none_or(|required| required != "1"),
            "{notice}"
        );
        eprintln!("skipped: {notice}");
        return None;
    };
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    } else {
        { file }.read_to_string(&mut text).unwrap();
    }
    Some(text)
}
