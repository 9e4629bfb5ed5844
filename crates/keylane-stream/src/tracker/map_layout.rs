//! Lengths of the parts of a map's text, on which its format and its limit agree.

/// Prefix of a map in version 1. A colon is not in the base-64 alphabet, so no other user of base 64
/// takes this text for its own. The prefix of version 2 is as long.
pub(super) const PREFIX: &str = "KL1:";

/// Maximum length of a leader epoch, in bytes.
pub(super) const MAX_EPOCH_BYTES: usize = 5;

/// Maximum length of a map without its gaps, in bytes: the sum over the table of the format
/// (`completed_map.rs`).
pub(super) const MAX_BYTES_WITHOUT_GAPS: usize = 4 + MAX_EPOCH_BYTES + 9 + 4 + 1 + 4;
