//! Draws the state: a headline, the jobs, below them what runs and the keys that wait, and a line for commands.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Row, Table, TableState};

use super::state::ViewState;
use super::text::{SLOT_COLUMNS, slots};
use crate::client::keys;
use crate::client::render::{left, plain};

/// Steps of a job's bar.
const BAR: usize = 16;

/// Width below which running subtasks and keys are not beside but below each other.
const WIDE: u16 = 120;

pub(super) fn draw(frame: &mut Frame<'_>, state: &ViewState) {
    let rows = Layout::vertical([
        Constraint::Length(2),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
    ]);
    let [head, jobs, below, foot] = rows.areas(frame.area());
    let [first, second] = state.headline();
    let headline = [Line::styled(first, Modifier::BOLD), Line::raw(second)];
    frame.render_widget(Text::from_iter(headline), head);
    draw_jobs(frame, jobs, state);
    let halves = [Constraint::Fill(1), Constraint::Fill(1)];
    let beside = below.width >= WIDE;
    let layout = if beside { Layout::horizontal(halves) } else { Layout::vertical(halves) };
    let [running, waiting] = layout.areas(below);
    draw_slots(frame, running, state);
    draw_keys(frame, waiting, state);
    frame.render_widget(Line::styled(state.prompt(), Modifier::REVERSED), foot);
}

/// A column of a table, and how it gives way.
struct TableColumn {
    name: &'static str,
    width: u16,
    /// Takes the width that is left.
    grows: bool,
    /// Columns without a rank stay; of the others the one with the lowest rank is dropped first on
    /// a narrow terminal.
    rank: Option<u8>,
}

const fn column(name: &'static str, width: u16, rank: Option<u8>) -> TableColumn {
    TableColumn { name, width, grows: false, rank }
}

const fn growing(name: &'static str, width: u16) -> TableColumn {
    TableColumn { name, width, grows: true, rank: None }
}

/// Which of the columns fit beside each other.
fn fitting(columns: &[TableColumn], width: u16) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    loop {
        let widths: u16 = kept.iter().map(|at| columns[*at].width + 1).sum();
        let ranked = kept.iter().filter_map(|at| columns[*at].rank.map(|rank| (rank, *at)));
        match ranked.min() {
            Some((_, least)) if widths > width + 1 => kept.retain(|at| *at != least),
            _ => return kept,
        }
    }
}

/// A table of the columns that fit.
fn table(
    columns: &[TableColumn],
    rows: impl Iterator<Item = Vec<String>>,
    width: u16,
    title: String,
) -> Table<'static> {
    let kept = fitting(columns, width);
    let rows = rows.map(|row| {
        let cells: Vec<_> = kept.iter().map(|at| row[*at].clone()).collect();
        Row::new(cells)
    });
    let widths = kept.iter().map(|at| match columns[*at].grows {
        true => Constraint::Min(columns[*at].width),
        false => Constraint::Length(columns[*at].width),
    });
    let header = Row::new(kept.iter().map(|at| columns[*at].name)).style(Modifier::BOLD);
    let block = Block::new().borders(Borders::TOP).title(title);
    Table::new(rows, widths).header(header).block(block)
}

const JOB_COLUMNS: [TableColumn; 8] = [
    column("PROGRESS", BAR as u16 + 5, None),
    growing("JOB", 12),
    column("KIND", 14, Some(1)),
    column("STATE", 10, None),
    column("DONE", 16, Some(4)),
    column("FAILED", 6, Some(3)),
    column("RUNNING", 7, Some(2)),
    column("LEFT", 14, Some(5)),
];

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, state: &ViewState) {
    let jobs = state.jobs();
    let rows = jobs.iter().map(|job| {
        let counts = &job.counts;
        vec![
            bar(job.progress),
            job.name.as_deref().map_or_else(|| plain(&job.id), plain).into_owned(),
            plain(&job.kind).into_owned(),
            job.state.as_str().to_owned(),
            format!("{}/{}", counts.ended(), counts.total),
            counts.failed.to_string(),
            counts.running.to_string(),
            left(job).unwrap_or_default(),
        ]
    });
    let title = format!("jobs ({})", jobs.len());
    let table = table(&JOB_COLUMNS, rows, area.width, title);
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut place = TableState::default().with_selected(state.selected());
    frame.render_stateful_widget(table, area, &mut place);
}

const SLOTS: [TableColumn; 5] = [
    column(SLOT_COLUMNS[0], 4, None),
    growing(SLOT_COLUMNS[1], 20),
    column(SLOT_COLUMNS[2], 12, None),
    column(SLOT_COLUMNS[3], 14, Some(2)),
    column(SLOT_COLUMNS[4], 12, Some(1)),
];

fn draw_slots(frame: &mut Frame<'_>, area: Rect, state: &ViewState) {
    let rows = state.picture.as_ref().map(slots).unwrap_or_default();
    let title = format!("running ({})", rows.len());
    frame.render_widget(table(&SLOTS, rows.into_iter(), area.width, title), area);
}

const KEYS: [TableColumn; 6] = [
    growing(keys::COLUMNS[0], 14),
    column(keys::COLUMNS[1], 7, Some(3)),
    column(keys::COLUMNS[2], 10, Some(2)),
    column(keys::COLUMNS[3], 12, Some(4)),
    growing(keys::COLUMNS[4], 12),
    column(keys::COLUMNS[5], 22, Some(1)),
];

fn draw_keys(frame: &mut Frame<'_>, area: Rect, state: &ViewState) {
    let keys = state.picture.iter().flat_map(|picture| &picture.keys);
    let rows = keys.map(keys::row);
    let title = "keys, by how long their heads are that".to_owned();
    frame.render_widget(table(&KEYS, rows, area.width, title), area);
}

fn bar(progress: f64) -> String {
    let progress = progress.clamp(0.0, 1.0);
    // Full only when it is.
    let full = (progress * BAR as f64) as usize;
    let percent = (progress * 100.0) as u64;
    format!("{}{} {percent:>3}%", "█".repeat(full), "░".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::tests::state;
    use super::*;

    fn drawn(state: &ViewState, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_has_its_place() {
        let text = drawn(&state(), 160, 30);
        for part in [
            "up 1 h 2 min | store ok",
            "2 of 64 slots busy",
            "jobs (3)",
            "██████████████░░  90% n1",
            "450/1000",
            "running (2)",
            "w1",
            "keys, by how long",
            "u7",
            "q quit",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    /// The names in a row are legible at any usual width.
    #[test]
    fn names_keep_their_width() {
        for (width, height) in [(60, 40), (80, 24), (120, 36), (160, 40)] {
            let text = drawn(&state(), width, height);
            let has_line = |names: &[&str]| {
                text.lines().any(|line| names.iter().all(|name| line.contains(name)))
            };
            assert!(has_line(&["PROGRESS", " JOB", "STATE"]), "{width}\n{text}");
            assert!(has_line(&["KEY", "HEAD SINCE", "HEAD "]), "{width}\n{text}");
        }
        assert!(drawn(&state(), 120, 36).contains(" LEFT"));
        for columns in [&JOB_COLUMNS[..], &SLOTS, &KEYS] {
            for width in 60..200 {
                let kept = fitting(columns, width);
                let sum: u16 = kept.iter().map(|at| columns[*at].width + 1).sum();
                assert!(sum <= width + 1, "{width}");
            }
        }
    }

    #[test]
    fn no_size_of_the_terminal_is_too_small() {
        let state = state();
        for width in [1, 2, 10, 40, 119, 120] {
            for height in [1, 2, 5, 24] {
                drawn(&state, width, height);
            }
        }
        drawn(&ViewState::default(), 80, 24);
    }

    #[test]
    fn a_bar_is_full_only_at_the_end() {
        assert!(bar(0.999).ends_with("░  99%"), "{}", bar(0.999));
        assert_eq!(bar(1.0), format!("{} 100%", "█".repeat(BAR)));
        assert_eq!(bar(f64::NAN), format!("{}   0%", "░".repeat(BAR)));
    }
}
