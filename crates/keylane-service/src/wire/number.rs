//! Whole numbers are accepted in every form that JSON gives them.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// Smallest float above which some whole numbers are not representable.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Deserializes an optional whole number. In JSON, `3.0` is the number 3.
pub(super) fn whole<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    deserializer.deserialize_any(WholeNumberVisitor(PhantomData))
}

/// Deserializes a whole number. In JSON, `3.0` is the number 3.
pub(super) fn required_whole<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let null = || D::Error::invalid_type(Unexpected::Unit, &"a whole number");
    whole(deserializer)?.ok_or_else(null)
}

struct WholeNumberVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for WholeNumberVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number of at most {} bits", 8 * size_of::<T>())
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        let fits = T::try_from(number);
        fits.map(Some).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        if number.fract() != 0.0 || !(0.0..=MAX_EXACT).contains(&number) {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is whole and in range"
        )]
        self.visit_u64(number as u64)
    }
}

#[cfg(test)]
mod tests {
    #[derive(Debug, serde::Deserialize)]
    struct Asked {
        #[serde(default, deserialize_with = "super::whole")]
        weight: Option<u32>,
    }

    fn weight(json: &str) -> Result<Option<u32>, String> {
        let asked: Result<Asked, _> = serde_json::from_str(json);
        asked.map(|asked| asked.weight).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        for (json, wanted) in [
            (r#"{"weight":3}"#, Some(3)),
            (r#"{"weight":3.0}"#, Some(3)),
            (r#"{"weight":4e2}"#, Some(400)),
            (r#"{"weight":4294967295.0}"#, Some(u32::MAX)),
            (r#"{"weight":null}"#, None),
            ("{}", None),
        ] {
            assert_eq!(weight(json), Ok(wanted), "{json}");
        }
        for json in ["3.5", "-1", "-1.0", "4294967296", "4294967296.0", "1e300", "\"3\"", "true"] {
            let refused = weight(&format!("{{\"weight\":{json}}}")).unwrap_err();
            assert!(refused.contains("a whole number of at most 32 bits"), "{json}: {refused}");
        }
    }
}
