//! Durations as users write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration as written on the command line and in configuration files: `500ms`, `1.5s`, `2m` or `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct DurationArg(pub(crate) Duration);

impl FromStr for DurationArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no time; write 500ms, 1.5s, 2m or 1h");
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let seconds = match &text[digits.len()..] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let count: f64 = digits.parse().map_err(|_| wrong())?;
        Duration::try_from_secs_f64(count * seconds).map(DurationArg).map_err(|_| wrong())
    }
}

impl TryFrom<String> for DurationArg {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for DurationArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        let span = |text: &str| text.parse::<DurationArg>().map(|span| span.0.as_millis());
        assert_eq!(span("500ms"), Ok(500));
        assert_eq!(span("1.5s"), Ok(1_500));
        assert_eq!(span("2m"), Ok(120_000));
        assert_eq!(span("1h"), Ok(3_600_000));
        for wrong in ["", "1", "s", "-1s", "1d", "1 s", "1e400s", "nans"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
