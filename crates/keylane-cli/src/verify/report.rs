//! Text of a verdict.

use std::fmt;
use std::io::{self, Write};

use super::check::{BrokenRule, TaskRun, Verdict, Violation};
use super::history::{History, LaneName};

/// Prints the violations, and a summary as the last line.
pub(super) fn print(history: &History, verdict: &Verdict, max_shown: usize) -> io::Result<()> {
    match write(&mut io::stdout().lock(), history, verdict, max_shown) {
        // The exit code still has the result.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn write(
    out: &mut impl Write,
    history: &History,
    verdict: &Verdict,
    max_shown: usize,
) -> io::Result<()> {
    for violation in verdict.violations.iter().take(max_shown) {
        writeln!(out, "{}", text(history, violation))?;
    }
    let hidden = verdict.violations.len().saturating_sub(max_shown);
    if hidden > 0 {
        writeln!(out, "and {hidden} more; --max-shown sets how many are printed")?;
    }
    write_counts(out, history, verdict)?;
    let judgement = match verdict.violations.len() {
        0 => "the order was kept".to_owned(),
        1 => "1 violation".to_owned(),
        count => format!("{count} violations"),
    };
    writeln!(out, "{judgement}")?;
    out.flush()
}

fn write_counts(out: &mut impl Write, history: &History, verdict: &Verdict) -> io::Result<()> {
    let (lines, lanes) = (history.lines, history.lane_count());
    write!(out, "{lines} lines, {lanes} keys, {} tasks: ", verdict.tasks)?;
    let notes = [
        (history.keyless, "lines without a key, which have no order"),
        (
            verdict.cut_off,
            "attempts without an end before their next attempt; their end was not checked",
        ),
        (verdict.repeated, "repeated attempts, as after a crash"),
    ];
    for (count, note) in notes.into_iter().filter(|(count, _)| *count > 0) {
        write!(out, "{count} {note}; ")?;
    }
    Ok(())
}

fn text(history: &History, violation: &Violation) -> String {
    let Violation { rule, run, other } = violation;
    let lane = history.lane_name(run.lane);
    let (here, there) = (history.location(run), history.location(other));
    let (place, earlier) = (run.place, other.place);
    match rule {
        BrokenRule::Order => {
            format!(
                "{here}: {lane}: place {place} started at {} before place {earlier} ({there}) {}",
                run.start,
                EndText(other)
            )
        }
        BrokenRule::Attempts => format!(
            "{here}: {lane}: attempt {} of place {place} started at {} before attempt {} ({there}) {}",
            run.attempt,
            run.start,
            other.attempt,
            EndText(other),
        ),
        BrokenRule::Fence => format!(
            "{here}: {lane}: place {place} started with fence {}, which is not above fence {} of place {earlier} \
             ({there})",
            run.fence.unwrap_or(0),
            other.fence.unwrap_or(0),
        ),
    }
}

/// End of a run, or its absence.
struct EndText<'a>(&'a TaskRun);

impl fmt::Display for EndText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.end {
            Some(end) => write!(f, "ended at {end}"),
            None => f.write_str("ended: it has no end"),
        }
    }
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.strip_prefix('\u{f8ff}') {
            Some(hex) => write!(f, "key 0x{hex}")?,
            None => write!(f, "key {:?}", self.key)?,
        }
        match &self.source {
            Some(source) => write!(f, " of {source}"),
            None => Ok(()),
        }
    }
}
