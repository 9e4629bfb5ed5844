//! Writes results as markdown: a table for each figure, then one for each peer to compare with.

use std::fmt::Write;

use super::Results;
use super::cell::{Cell, Summary};
use super::spec::Figure;

pub(super) fn render(results: &Results, rounds: usize) -> String {
    let workload = results.spec.workload.to_uppercase();
    let rounds = format!("{rounds} round{}", if rounds == 1 { "" } else { "s" });
    let mut text = String::new();
    for figure in results.spec.figures {
        let title = format!("{workload}: {}; median (min–max) of {rounds}", figure.title);
        table(&mut text, &title, results, figure, |column, peer| {
            show(&results.cells[column][peer], figure)
        });
        if figure.is_compared {
            for reference in &results.spec.against {
                compare(&mut text, results, figure, reference);
            }
        }
    }
    footnotes(&mut text, results);
    text
}

fn compare(text: &mut String, results: &Results, figure: &Figure, reference: &str) {
    let at = results.spec.peers.iter().position(|peer| peer == reference);
    let at = at.expect("a reference is one of the peers");
    let workload = results.spec.workload.to_uppercase();
    let title = format!("{workload}: times as fast as `{reference}`, by medians");
    table(text, &title, results, figure, |column, peer| {
        let cells = &results.cells[column];
        match (cells[at].summary(figure.name), cells[peer].summary(figure.name)) {
            (Some(theirs), Some(own)) => format!("{:.2}", theirs.median / own.median),
            _ => "–".to_owned(),
        }
    });
}

/// Columns in which no run has the figure, or could have, are left out.
fn table(
    text: &mut String,
    title: &str,
    results: &Results,
    figure: &Figure,
    cell: impl Fn(usize, usize) -> String,
) {
    let speaks = |cell: &Cell| cell.complaint().is_some() || cell.summary(figure.name).is_some();
    let columns: Vec<usize> = (0..results.cells.len())
        .filter(|&column| results.cells[column].iter().any(speaks))
        .collect();
    if columns.is_empty() {
        return;
    }
    let titles: Vec<&str> =
        columns.iter().map(|&column| results.spec.columns[column].title.as_str()).collect();
    line(text, format_args!("**{title}**\n"));
    line(text, format_args!("| | {} |", titles.join(" | ")));
    line(text, format_args!("|---|{}", "---:|".repeat(columns.len())));
    for (at, peer) in results.spec.peers.iter().enumerate() {
        let cells: Vec<String> = columns.iter().map(|&column| cell(column, at)).collect();
        line(text, format_args!("| {peer} | {} |", cells.join(" | ")));
    }
    line(text, format_args!(""));
}

fn show(cell: &Cell, figure: &Figure) -> String {
    if let Some(complaint) = cell.complaint() {
        return format!("**{complaint}**");
    }
    let Some(Summary { median, min, max, is_disturbed }) = cell.summary(figure.name) else {
        return "–".to_owned();
    };
    let mark = if is_disturbed { "†" } else { "" };
    format!("{}{mark} ({}–{})", number(median), number(min), number(max))
}

/// Three digits, or all of an integer.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn footnotes(text: &mut String, results: &Results) {
    let cells = || results.cells.iter().flatten();
    let figure = results.spec.figures[0].name;
    if cells().filter_map(|cell| cell.summary(figure)).any(|summary| summary.is_disturbed) {
        line(
            text,
            format_args!(
                "† fewer than three runs without other load on the machine; all were kept.\n"
            ),
        );
    }
    if cells().all(Cell::is_right) {
        line(text, format_args!("Every run finished all its tasks, in order.\n"));
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string");
}
