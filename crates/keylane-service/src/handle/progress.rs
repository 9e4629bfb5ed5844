//! Progress of an attempt, as its handler reports it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Progress of a running attempt, for humans: clients see the last reported one. It is in memory only, and has no effect
/// on the attempt. Clones share it.
///
/// ```
/// use keylane_service::handle::AttemptProgress;
///
/// let progress = AttemptProgress::default();
/// assert_eq!(progress.fraction(), None);
/// progress.report(0.25);
/// assert_eq!(progress.fraction(), Some(0.25));
/// ```
#[derive(Clone, Debug, Default)]
pub struct AttemptProgress(Arc<AtomicU32>);

/// Number of steps from nothing to the end.
const STEPS: f64 = 1e6;

impl AttemptProgress {
    /// Reports the finished part, from 0 to 1. A number beyond counts as the nearest of these, and none that is not a
    /// number.
    pub fn report(&self, fraction: f64) {
        let mut steps = ProgressSteps::default();
        steps.set(fraction);
        if steps.0 != 0 {
            self.0.store(steps.0, Relaxed);
        }
    }

    /// Returns the last reported part, to a millionth; `None` before the first report.
    #[must_use]
    pub fn fraction(&self) -> Option<f64> {
        ProgressSteps(self.0.load(Relaxed)).fraction()
    }
}

/// Last reported progress, in steps, plus one; 0 before the first report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgressSteps(u32);

impl ProgressSteps {
    /// As [`AttemptProgress::report`].
    pub(crate) fn set(&mut self, fraction: f64) {
        if !fraction.is_nan() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "from 0 to STEPS"
            )]
            let steps = (fraction.clamp(0.0, 1.0) * STEPS).round() as u32;
            self.0 = steps + 1;
        }
    }

    /// As [`AttemptProgress::fraction`].
    pub(crate) fn fraction(self) -> Option<f64> {
        Some(f64::from(self.0.checked_sub(1)?) / STEPS)
    }
}

/// Start of a line of standard error with a progress.
const MARK: &[u8] = b"keylane-progress:";

/// Maximum length of such a line.
const MAX_LINE_BYTES: usize = 64;

/// Finds progress in standard error: lines such as `keylane-progress: 0.5`.
#[derive(Debug, Default)]
pub(super) struct ProgressLines {
    /// Beginning of a line that has not ended, unless it is too long.
    line: Vec<u8>,
    is_too_long: bool,
}

impl ProgressLines {
    /// Reads the next part of the output, and reports the progress in the lines that end in it.
    pub(super) fn read(&mut self, part: &[u8], progress: &AttemptProgress) {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            self.is_too_long |= self.line.len() + piece.len() > MAX_LINE_BYTES;
            if !self.is_too_long {
                self.line.extend(piece);
            }
            if piece.ends_with(b"\n") {
                if !self.is_too_long {
                    self.end_line(progress);
                }
                self.line.clear();
                self.is_too_long = false;
            }
        }
    }

    fn end_line(&self, progress: &AttemptProgress) {
        let number = self.line.strip_prefix(MARK).and_then(|text| std::str::from_utf8(text).ok());
        if let Some(Ok(fraction)) = number.map(|text| text.trim().parse()) {
            progress.report(fraction);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_range_count_as_its_ends() {
        let progress = AttemptProgress::default();
        for (reported, shown) in [(-1.0, 0.0), (7.0, 1.0), (f64::NAN, 1.0), (1.0 / 3.0, 0.333_333)]
        {
            progress.report(reported);
            assert_eq!(progress.fraction(), Some(shown), "{reported}");
        }
    }

    #[test]
    fn lines_are_found_however_the_output_is_cut() {
        let long = "x".repeat(200);
        let text = format!(
            "reads\nkeylane-progress: 0.5\n{long}keylane-progress: 0.9\nkeylane-progress: much\n\
             see keylane-progress: 0.8\nkeylane-progress:0.75\r\nkeylane-progress: 0.99"
        );
        for size in 1..text.len() {
            let (mut lines, progress) = (ProgressLines::default(), AttemptProgress::default());
            let mut seen = Vec::new();
            for part in text.as_bytes().chunks(size) {
                lines.read(part, &progress);
                seen.extend(progress.fraction());
            }
            seen.dedup();
            // The last line has not ended.
            assert_eq!(seen.last(), Some(&0.75), "{size}");
            assert!(seen.iter().all(|fraction| [0.5, 0.75].contains(fraction)), "{seen:?}");
        }
    }
}
