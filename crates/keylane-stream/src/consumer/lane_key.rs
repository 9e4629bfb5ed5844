//! Compact key bytes: inline for short keys, as most are.

use std::fmt;

/// Maximum length of an inline key, chosen so that a `LaneKey` is as large as a `Vec`.
const SHORT: usize = 22;

/// Bytes of a key. Short keys need no allocation.
///
/// Each key has exactly one form, so equality of forms is equality of keys.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct LaneKey(LaneKeyForm);

#[derive(Clone, PartialEq, Eq)]
enum LaneKeyForm {
    /// Bytes beyond `length` are zero.
    Short {
        length: u8,
        bytes: [u8; SHORT],
    },
    Long(Box<[u8]>),
}

impl LaneKey {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            LaneKeyForm::Short { length, bytes } => &bytes[..usize::from(*length)],
            LaneKeyForm::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for LaneKey {
    fn from(key: &[u8]) -> Self {
        if key.len() > SHORT {
            return LaneKey(LaneKeyForm::Long(key.into()));
        }
        let mut bytes = [0; SHORT];
        bytes[..key.len()].copy_from_slice(key);
        LaneKey(LaneKeyForm::Short { length: key.len() as u8, bytes })
    }
}

impl fmt::Debug for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_equal_if_and_only_if_their_bytes_are() {
        let keys: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0, 0],
            vec![7; SHORT - 1],
            vec![7; SHORT],
            vec![7; SHORT + 1],
            vec![7; 300],
            [&[7; SHORT][..], &[0]].concat(),
        ];
        for one in &keys {
            assert_eq!(LaneKey::from(&one[..]).as_bytes(), one);
            for other in &keys {
                let equal = LaneKey::from(&one[..]) == LaneKey::from(&other[..]);
                assert_eq!(equal, one == other, "{one:?} {other:?}");
            }
        }
        assert_eq!(size_of::<LaneKey>(), size_of::<Vec<u8>>());
    }
}
