//! Values of a configuration that are one text or a list of texts.

use serde::{Deserialize, Deserializer};

/// Reads a text, or a list of texts.
pub(super) fn one_or_several<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Texts {
        One(String),
        Several(Vec<String>),
    }
    Texts::deserialize(input).map(|texts| match texts {
        Texts::One(text) => Some(vec![text]),
        Texts::Several(texts) => Some(texts),
    })
}
