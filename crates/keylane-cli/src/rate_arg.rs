//! Rates as users write them.

use std::str::FromStr;
use std::time::Duration;

use keylane::Rate;

use crate::duration_arg::DurationArg;

/// A number of starts per time: `100/s`, `5/m`, `1/10s`.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct RateArg(pub(crate) Rate);

impl RateArg {
    /// Returns the starts per second, to a millionth.
    pub(crate) fn per_second(self) -> f64 {
        (1e6 / self.0.interval().as_secs_f64()).round() / 1e6
    }
}

impl PartialEq for RateArg {
    fn eq(&self, other: &Self) -> bool {
        self.0.interval() == other.0.interval()
    }
}

impl TryFrom<String> for RateArg {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for RateArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no rate; write 100/s, 5/m or 1/10s");
        let (count, time) = text.split_once('/').ok_or_else(wrong)?;
        let count: u32 = count.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        let time = match time.starts_with(|letter: char| letter.is_ascii_digit()) {
            true => time.parse::<DurationArg>(),
            false => format!("1{time}").parse::<DurationArg>(),
        };
        let DurationArg(time) = time.map_err(|_| wrong())?;
        let interval = Duration::from_nanos_u128(time.as_nanos().div_ceil(count.into()));
        if interval.is_zero() {
            return Err(wrong());
        }
        Ok(RateArg(Rate::every(interval)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_number_per_time() {
        let interval = |text: &str| text.parse::<RateArg>().map(|rate| rate.0.interval());
        assert_eq!(interval("100/s"), Ok(Duration::from_millis(10)));
        assert_eq!(interval("5/m"), Ok(Duration::from_secs(12)));
        assert_eq!("3/s".parse::<RateArg>().unwrap().per_second(), 3.0);
        assert_eq!(interval("1/10s"), Ok(Duration::from_secs(10)));
        assert_eq!(interval("3/1.5s"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "0/s", "/s", "5/", "-1/s", "5/0s", "5 /s", "5/d"] {
            assert!(wrong.parse::<RateArg>().is_err(), "{wrong}");
        }
    }
}
