//! Virtual time in milliseconds, and its text form.

/// Reads `90`, `0.5` (seconds), `1:30` or `1:00:00`.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no time: give seconds like 90 or 0.5, or 1:30, or 1:00:00");
    let mut seconds = 0.0;
    let mut parts = text.trim().split(':').peekable();
    let mut count = 0;
    while let Some(part) = parts.next() {
        count += 1;
        let is_last = parts.peek().is_none();
        let value: f64 = part.parse().map_err(|_| wrong())?;
        let is_whole = value.fract() == 0.0;
        let is_below_sixty = count == 1 || value < 60.0;
        if !value.is_finite() || value < 0.0 || !is_below_sixty || !(is_last || is_whole) {
            return Err(wrong());
        }
        seconds = seconds * 60.0 + value;
    }
    // Bounds the time to a year, which keeps sums far from overflow.
    if count > 3 || seconds > 366.0 * 86_400.0 {
        return Err(wrong());
    }
    Ok((seconds * 1000.0).round() as u64)
}

/// Writes `0:59`, `1:02:03`, and milliseconds where there are some.
pub(super) fn show(ms: u64) -> String {
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let mut text = match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    };
    if ms > 0 {
        text.push_str(&format!(".{ms:03}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, ms) in [("0", 0), ("0.25", 250), ("2:01", 121_000), ("1:00:00.5", 3_600_500)] {
            assert_eq!(parse(text), Ok(ms), "{text}");
            assert_eq!(parse(&show(ms)), Ok(ms), "{text}");
        }
        for wrong in ["", "x", "-1", "1:60", "1.5:00", "inf", "nan", "1:2:3:4", "1e30", ":5"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
