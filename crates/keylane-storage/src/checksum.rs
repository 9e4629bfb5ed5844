//! Checksums of stored content: content that is damaged, or at another place, does not verify.
//!
//! A checksum is four bytes behind the content: the CRC32C of the numbers that identify the
//! content's type and place, eight bytes each in little-endian order, and of the content itself.

/// Length of a checksum, in bytes.
pub const BYTES: usize = 4;

/// Appends the checksum.
pub fn seal(bytes: &mut Vec<u8>, place: &[u64]) {
    let sum = sum(bytes, place);
    bytes.extend(sum.to_le_bytes());
}

/// Returns the content before the checksum, if it verifies for this place.
#[must_use]
pub fn unseal<'a>(bytes: &'a [u8], place: &[u64]) -> Option<&'a [u8]> {
    let (content, expected) = bytes.split_last_chunk::<BYTES>()?;
    (u32::from_le_bytes(*expected) == sum(content, place)).then_some(content)
}

/// Returns the checksum of content at a place.
#[must_use]
pub fn sum(bytes: &[u8], place: &[u64]) -> u32 {
    let sum = place.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, &part.to_le_bytes()));
    crc32c::crc32c_append(sum, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_flipped_bit_or_another_place_is_noticed(
            content in prop::collection::vec(any::<u8>(), 0..200), place in any::<[u64; 2]>(),
            bit in any::<prop::sample::Index>(), other in any::<[u64; 2]>(),
        ) {
            let mut bytes = content.clone();
            seal(&mut bytes, &place);
            prop_assert_eq!(unseal(&bytes, &place), Some(&content[..]));
            if other != place {
                prop_assert_eq!(unseal(&bytes, &other), None);
            }
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(unseal(&bytes, &place), None);
        }
    }
}
