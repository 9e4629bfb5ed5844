//! Text for humans about jobs. Text written by users of the server is escaped for the terminal.

use std::borrow::Cow;
use std::fmt::Write;

use keylane_service::wire::{Because, Job, Timestamp};

use crate::progress::clock;

/// Text without terminal control: colours, bells, cursor moves, line ends.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let written = |letter: char| match is_control(letter) {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    Cow::Owned(text.chars().map(written).collect())
}

/// Control characters, including C1, and marks that change the direction of text.
fn is_control(letter: char) -> bool {
    let turns = matches!(
        letter,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || turns
}

/// JSON in one line, with control characters as equivalent JSON escapes.
pub(super) fn one_line(json: &[u8]) -> Vec<u8> {
    let mut line = String::with_capacity(json.len());
    for letter in String::from_utf8_lossy(json.trim_ascii()).chars() {
        match letter {
            // A line end between JSON tokens is a blank; those in strings are escaped.
            '\n' | '\r' | '\t' => line.push(' '),
            // All of these have four digits.
            letter if is_control(letter) => {
                let _ = write!(line, "\\u{:04x}", u32::from(letter));
            }
            letter => line.push(letter),
        }
    }
    line.into_bytes()
}

/// Finished part of a job: `450 of 1000 done, 3 of them failed`.
pub(super) fn done(job: &Job) -> String {
    let counts = &job.counts;
    let mut text = format!("{} of {} done", counts.ended(), counts.total);
    let parts = [
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (counts.superseded, "superseded"),
    ];
    for (count, what) in parts {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text
}

/// Unfinished part of a job: `10 running, 540 waiting`.
pub(super) fn open(job: &Job) -> String {
    let counts = &job.counts;
    let parts = [
        (counts.running, "running"),
        (counts.ready, "ready"),
        (counts.waiting, "waiting"),
        (counts.backing_off, "backing off"),
    ];
    let parts: Vec<_> = parts.iter().filter(|(count, _)| *count > 0).collect();
    let parts: Vec<_> = parts.iter().map(|(count, what)| format!("{count} {what}")).collect();
    parts.join(", ")
}

/// How a job is, in a line.
pub(super) fn line(job: &Job) -> String {
    let mut text = format!("{} {}: {}", plain(&job.id), job.state.as_str(), done(job));
    let open = open(job);
    if !job.state.is_final() && !open.is_empty() {
        let _ = write!(text, "; {open}");
    }
    if let Some(left) = left(job) {
        let _ = write!(text, "; {left}");
    }
    if let Some(error) = job.error.as_ref().filter(|_| job.state.is_final()) {
        let _ = write!(text, "; first error: {}", plain(error));
    }
    text
}

/// Estimated time to the end, if known.
pub(super) fn left(job: &Job) -> Option<String> {
    let millis = job.eta_ms.filter(|_| !job.state.is_final())?;
    Some(format!("{} left", clock(millis.div_ceil(1000))))
}

/// Reason for waiting, with the number of subtasks.
pub(super) fn because(because: &Because) -> String {
    let mut text = match because.count {
        Some(count) => format!("{count} × {}", plain(&because.text)),
        None => plain(&because.text).into_owned(),
    };
    if because.text.is_empty() {
        text.push_str(&plain(&because.reason));
    }
    // The sentence need not have all that is known.
    let known = [("key", &because.key), ("behind", &because.job)];
    for (what, value) in known {
        if let Some(value) = value.as_ref().filter(|value| !because.text.contains(value.as_str())) {
            let _ = write!(text, "; {what} {}", plain(value));
        }
    }
    text
}

/// Time since a timestamp.
pub(super) fn age(at: Timestamp, now: Timestamp) -> String {
    clock(now.0.saturating_sub(at.0) / 1000)
}

/// Table with columns as wide as their content; columns of numbers are right-aligned.
pub(super) fn table(header: &[&str], numbers: &[usize], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match numbers.contains(&column) {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Job as in the API's documentation, changed by the fields of `with`.
    pub(in crate::client) fn job(with: &str) -> Job {
        let mut job = serde_json::json!({
            "id": "job_0199aaaaaaaa7000800000000000000a", "kind": "resize", "labels": {}, "state": "running",
            "weight": 1, "progress": 0.45, "created_at": "2026-01-31T12:00:00.000Z", "version": 3,
            "counts": {"total": 1000, "waiting": 540, "ready": 0, "running": 10, "backing_off": 0,
                       "succeeded": 447, "failed": 3, "cancelled": 0},
        });
        let with: serde_json::Value = serde_json::from_str(with).unwrap();
        for (name, value) in with.as_object().unwrap() {
            job[name] = value.clone();
        }
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn a_job_is_a_line() {
        let text = line(&job(r#"{"eta_ms": 29500}"#));
        let expected = "job_0199aaaaaaaa7000800000000000000a running: 450 of 1000 done, 3 failed; \
                        10 running, 540 waiting; 30 s left";
        assert_eq!(text, expected);
        let text = line(&job(r#"{"state": "failed", "error": "no\nroom", "eta_ms": 5}"#));
        assert!(text.ends_with("3 failed; first error: no\\nroom"), "{text}");
    }

    #[test]
    fn nothing_that_users_wrote_moves_the_cursor() {
        assert_eq!(plain("a\x1b[2Jb\u{202e}c"), "a\\u{1b}[2Jb\\u{202e}c");
        assert_eq!(plain("grün"), "grün");
    }

    #[test]
    fn json_has_no_letter_that_a_terminal_obeys_and_means_the_same() {
        let text = "{\"a\":\"x\u{9b}31m \u{202e}y\u{200f} \u{7f} grün\"}";
        let line = String::from_utf8(one_line(text.as_bytes())).unwrap();
        assert_eq!(line, "{\"a\":\"x\\u009b31m \\u202ey\\u200f \\u007f grün\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&line), value(text));
    }

    #[test]
    fn json_is_one_line_and_stays_what_it_was() {
        let text = b"{\n \"a\": \"x\\ny\",\r\n \"b\": 12345678901234567890123\n}\n";
        let line = one_line(text);
        assert!(!line.contains(&b'\n'));
        let value = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        assert_eq!(value(&line), value(text));
        assert!(String::from_utf8(line).unwrap().contains("12345678901234567890123"));
    }

    #[test]
    fn a_reason_is_said_with_what_its_sentence_leaves_out() {
        let reason = |text: &str| Because {
            reason: "key_order".into(),
            text: text.into(),
            count: Some(540),
            key: Some("u7".into()),
            position: None,
            job: None,
            number: None,
            since: None,
            until: None,
        };
        assert_eq!(because(&reason("behind others of `u7`")), "540 × behind others of `u7`");
        assert_eq!(because(&reason("behind others")), "540 × behind others; key u7");
        assert_eq!(because(&reason("")), "540 × key_order; key u7");
    }

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = [vec!["a".into(), "5".into()], vec!["long".into(), "12".into()]];
        assert_eq!(table(&["ID", "N"], &[1], &rows), "ID     N\na      5\nlong  12\n");
    }
}
