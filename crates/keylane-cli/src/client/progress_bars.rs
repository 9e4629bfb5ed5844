//! Progress of jobs on standard error: a bar for each on a terminal, else occasional lines.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use keylane_service::wire::{Because, Job, JobState};

use super::error::say;
use super::render::{self, plain};
use crate::progress::ProgressMode;

/// Interval of lines about a job whose state is unchanged: long enough for a log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Steps of a bar.
const STEPS: f64 = 1000.0;

/// Displayed jobs.
#[derive(Debug)]
pub(super) struct ProgressBars {
    mode: ProgressMode,
    bars: MultiProgress,
    rows: RefCell<Vec<JobProgressBar>>,
}

#[derive(Debug)]
struct JobProgressBar {
    bar: ProgressBar,
    /// The state that the last line was about, and when that was.
    said: Option<(JobState, Instant)>,
    /// The reason for waiting that was shown last.
    reason: Option<Because>,
}

impl ProgressBars {
    pub(super) fn new(mode: ProgressMode) -> Self {
        let mode = match mode {
            ProgressMode::Auto if io::stderr().is_terminal() => ProgressMode::Bar,
            ProgressMode::Auto => ProgressMode::Plain,
            chosen => chosen,
        };
        ProgressBars {
            mode,
            bars: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            rows: RefCell::default(),
        }
    }

    /// A place for a job.
    pub(super) fn row(&self, id: &str) -> usize {
        let bar = match self.mode {
            ProgressMode::Bar => self.bars.add(bar(id)),
            _ => ProgressBar::hidden(),
        };
        let mut rows = self.rows.borrow_mut();
        rows.push(JobProgressBar { bar, said: None, reason: None });
        rows.len() - 1
    }

    /// The job of this row is so now.
    pub(super) fn show(&self, row: usize, job: &Job) {
        let row = &mut self.rows.borrow_mut()[row];
        match self.mode {
            ProgressMode::Bar => draw(&row.bar, job),
            ProgressMode::Plain => {
                let is_due = row
                    .said
                    .is_none_or(|(state, at)| state != job.state || at.elapsed() >= LINE_EVERY);
                if is_due {
                    row.said = Some((job.state, Instant::now()));
                    say(render::line(job));
                }
            }
            ProgressMode::None | ProgressMode::Auto => {}
        }
    }

    /// Shows why a job waits of which nothing runs, once for each reason.
    pub(super) fn show_reason(&self, row: usize, job: &Job) {
        let Some(reason) = job.waiting_because.first().filter(|_| job.counts.running == 0) else {
            return;
        };
        let row = &mut self.rows.borrow_mut()[row];
        // Other parts of a reason, such as a remaining time, change all the time.
        let is_known = row.reason.as_ref().is_some_and(|known| {
            (&known.reason, &known.key, &known.job) == (&reason.reason, &reason.key, &reason.job)
        });
        if is_known || !matches!(self.mode, ProgressMode::Bar | ProgressMode::Plain) {
            return;
        }
        self.say(format_args!("{} waits: {}", plain(&job.id), render::because(reason)));
        row.reason = Some(reason.clone());
    }

    /// Writes a line beside the bars.
    pub(super) fn say(&self, message: impl Display) {
        self.bars.suspend(|| say(message));
    }

    /// Ends the display and leaves its last state visible.
    pub(super) fn leave(&self) {
        for row in &*self.rows.borrow() {
            if !row.bar.is_finished() {
                row.bar.abandon();
            }
        }
    }
}

fn bar(id: &str) -> ProgressBar {
    let bar = ProgressBar::new(STEPS as u64);
    let template = "{prefix} {bar:20} {percent:>3}% {wide_msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
    bar.set_prefix(plain(id).into_owned());
    bar
}

fn draw(bar: &ProgressBar, job: &Job) {
    if let Some(name) = &job.name {
        bar.set_prefix(plain(name).into_owned());
    }
    bar.set_position((job.progress.clamp(0.0, 1.0) * STEPS) as u64);
    let mut parts = vec![job.state.as_str().to_owned(), render::done(job), render::open(job)];
    parts.extend(render::left(job));
    parts.retain(|part| !part.is_empty());
    bar.set_message(parts.join("; "));
    if job.state.is_final() {
        bar.abandon();
    }
}
