//! Rates in the configuration.

use serde::Deserialize;

/// Rate, as in `100/s`, `30/m` or `500/h`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct RateText(f64);

impl TryFrom<String> for RateText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no rate; write 100/s, 30/m or 500/h");
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let seconds = match unit {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let count: f64 = count.parse().map_err(|_| wrong())?;
        if !(count.is_finite() && count > 0.0) {
            return Err(wrong());
        }
        Ok(RateText(count / seconds))
    }
}

impl RateText {
    pub(super) fn per_second(self) -> f64 {
        self.0
    }
}
