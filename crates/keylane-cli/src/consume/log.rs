//! Log of a consumer on standard error: lines with time and level, with a limit on repeated ones.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::output::StandardOutput;

/// Maximum number of line types that are tracked. Beyond it, the longest silent ones are forgotten.
const MAX_KINDS: usize = 256;

/// Interval at which a repeated type of line is written.
const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogLevel {
    Info,
    Warn,
    Error,
}

/// Log that omits lines that resemble many recent ones.
#[derive(Debug)]
pub(super) struct ThrottledLog {
    output: Arc<StandardOutput>,
    kinds: Mutex<HashMap<String, LineThrottle>>,
}

/// Lines that differ in their numbers alone.
#[derive(Debug)]
struct LineThrottle {
    /// Number of lines that may be written at once; grows by one per [`INTERVAL`].
    left: u32,
    /// When one came back last.
    since: Instant,
    /// Number of lines omitted since the last written one.
    omitted: u64,
}

impl ThrottledLog {
    pub(super) fn new(output: Arc<StandardOutput>) -> Self {
        ThrottledLog { output, kinds: Mutex::default() }
    }

    /// Writes a line, however often it comes.
    pub(super) fn say(&self, level: LogLevel, message: impl Display) {
        let time = jiff::Timestamp::now();
        let level = match level {
            LogLevel::Info => "INFO",
            LogLevel::Warn => "WARN",
            LogLevel::Error => "ERROR",
        };
        let line = format!("{time:.3} {level} keylane: {message}\n");
        self.output.write_error(|err| std::io::Write::write_all(err, line.as_bytes()));
    }

    /// Writes a line, if no more than `burst` of its kind came before it in a short time.
    pub(super) fn say_seldom(&self, level: LogLevel, burst: u32, message: impl Display) {
        let message = message.to_string();
        match self.omitted_before(&message, burst, Instant::now()) {
            Some(0) => self.say(level, message),
            Some(omitted) => {
                self.say(level, format_args!("{message} ({omitted} lines like this left out)"));
            }
            None => {}
        }
    }

    /// Number of similar lines omitted before this one; none if this line is omitted too.
    fn omitted_before(&self, message: &str, burst: u32, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let name: String = message.chars().filter(|c| !c.is_ascii_digit()).take(200).collect();
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&name) {
            let oldest = kinds.iter().min_by_key(|(_, kind)| kind.since);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|oldest| kinds.remove(&oldest));
        }
        let new = || LineThrottle { left: burst, since: now, omitted: 0 };
        let kind = kinds.entry(name).or_insert_with(new);
        let passed = now.saturating_duration_since(kind.since).as_secs() / INTERVAL.as_secs();
        if passed > 0 {
            let back = u32::try_from(passed).unwrap_or(u32::MAX);
            kind.left = kind.left.saturating_add(back).min(burst);
            kind.since = now;
        }
        if kind.left == 0 {
            kind.omitted += 1;
            return None;
        }
        kind.left -= 1;
        Some(std::mem::take(&mut kind.omitted))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use indicatif::ProgressBar;

    use super::*;

    #[test]
    fn lines_that_differ_in_numbers_alone_are_left_out_after_some() {
        let (events, _) = mpsc::channel();
        let log = ThrottledLog::new(Arc::new(
            StandardOutput::new(ProgressBar::hidden(), events).unwrap(),
        ));
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let told = |text: &str, at| log.omitted_before(text, 2, at);
        assert_eq!(told("refused after 3 ms", after(0)), Some(0));
        assert_eq!(told("refused after 4 ms", after(0)), Some(0));
        assert_eq!(told("refused after 5 ms", after(1)), None);
        assert_eq!(told("another", after(1)), Some(0));
        assert_eq!(told("refused after 6 ms", after(2)), None);
        assert_eq!(told("refused after 7 ms", after(12)), Some(2));
        assert_eq!(told("refused after 8 ms", after(13)), None);
        assert_eq!(told("refused after 9 ms", after(60)), Some(1));
        assert_eq!(told("refused after 10 ms", after(60)), Some(0));
    }

    #[test]
    fn the_number_of_line_types_is_bounded() {
        let (events, _) = mpsc::channel();
        let log = ThrottledLog::new(Arc::new(
            StandardOutput::new(ProgressBar::hidden(), events).unwrap(),
        ));
        for kind in 0..2 * MAX_KINDS {
            let letters: String = kind.to_string().bytes().map(|d| char::from(d + 49)).collect();
            assert_eq!(log.omitted_before(&letters, 1, Instant::now()), Some(0));
        }
        assert_eq!(log.kinds.lock().unwrap().len(), MAX_KINDS);
    }
}
