//! Draws the state: a headline, the jobs, below them what runs and the keys that wait, and a line for commands.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Row, Table, TableState};

use super::state::State;
use super::text::{SLOT_COLUMNS, slots};
use crate::client::keys;
use crate::client::words::{left, plain};

/// Steps of a job's bar.
const BAR: usize = 16;

/// Below this, what runs and the keys are not beside but below each other.
const WIDE: u16 = 120;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
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

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let jobs = state.jobs();
    let rows = jobs.iter().map(|job| {
        let counts = &job.counts;
        let mut cells = vec![
            bar(job.progress),
            job.name.as_deref().map_or_else(|| plain(&job.id), plain).into_owned(),
            plain(&job.kind).into_owned(),
            job.state.as_str().to_owned(),
            format!("{}/{}", counts.ended(), counts.total),
            counts.failed.to_string(),
            counts.running.to_string(),
        ];
        cells.push(left(job).unwrap_or_default());
        Row::new(cells)
    });
    let widths = [
        Constraint::Length(BAR as u16 + 5),
        Constraint::Fill(1),
        Constraint::Max(14),
        Constraint::Length(10),
        Constraint::Length(16),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(16),
    ];
    let names = ["PROGRESS", "JOB", "KIND", "STATE", "DONE", "FAILED", "RUNNING", ""];
    let table = titled(Table::new(rows, widths), &names, format!("jobs ({})", jobs.len()));
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut place = TableState::default().with_selected(state.selected());
    frame.render_stateful_widget(table, area, &mut place);
}

fn draw_slots(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let rows = state.picture.as_ref().map(slots).unwrap_or_default();
    let count = rows.len();
    let widths = [
        Constraint::Length(4),
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(12),
        Constraint::Max(14),
    ];
    let table = Table::new(rows.into_iter().map(Row::new), widths);
    frame.render_widget(titled(table, &SLOT_COLUMNS, format!("running ({count})")), area);
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let keys = state.picture.iter().flat_map(|picture| &picture.keys);
    let rows: Vec<_> = keys.map(|key| Row::new(keys::row(key))).collect();
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(12),
        Constraint::Fill(1),
        Constraint::Max(22),
    ];
    let title = "keys, by how long their heads are that";
    frame.render_widget(titled(Table::new(rows, widths), &keys::COLUMNS, title.to_owned()), area);
}

fn titled<'a>(table: Table<'a>, names: &[&'a str], title: String) -> Table<'a> {
    let header = Row::new(names.to_vec()).style(Modifier::BOLD);
    table.header(header).block(Block::new().borders(Borders::TOP).title(title))
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

    fn drawn(state: &State, width: u16, height: u16) -> String {
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

    #[test]
    fn no_size_of_the_terminal_is_too_small() {
        let state = state();
        for width in [1, 2, 10, 40, 119, 120] {
            for height in [1, 2, 5, 24] {
                drawn(&state, width, height);
            }
        }
        drawn(&State::default(), 80, 24);
    }

    #[test]
    fn a_bar_is_full_only_at_the_end() {
        assert!(bar(0.999).ends_with("░  99%"), "{}", bar(0.999));
        assert_eq!(bar(1.0), format!("{} 100%", "█".repeat(BAR)));
        assert_eq!(bar(f64::NAN), format!("{}   0%", "░".repeat(BAR)));
    }
}
