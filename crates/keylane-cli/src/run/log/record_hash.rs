//! Hash of a record's bytes, equal in all versions and on all machines.

use sha2::{Digest, Sha256};

/// Returns the first 64 bits of the SHA-256 hash. In hexadecimal digits, as in the log, they are those
/// of `sha256sum | cut -c1-16`.
pub(in crate::run) fn record_hash(record: &[u8]) -> u64 {
    let hash = Sha256::digest(record);
    u64::from_be_bytes(hash[..8].try_into().expect("the hash is longer"))
}

/// Parses the hexadecimal digits of a hash.
pub(super) fn parse_hash(text: &str) -> Option<u64> {
    let is_hash = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_sha256sum() {
        let text = format!("{:016x}", record_hash(b"ann 10"));
        assert_eq!(text, "c530cffd3fd3af1c");
        assert_eq!(parse_hash(&text), Some(record_hash(b"ann 10")));
        assert_eq!(parse_hash("c530"), None);
    }
}
