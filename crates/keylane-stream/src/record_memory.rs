//! Memory of the keys and payloads of a source's records: small ones share blocks, which costs no allocation each.

use bytes::{Bytes, BytesMut};

/// Size of a block. A record that is kept for long keeps its whole block, so blocks are small.
const BLOCK_BYTES: usize = 4096;

/// Maximum length of bytes that share a block. Larger ones are worth an allocation.
const MAX_SHARED_BYTES: usize = 512;

/// Allocator of keys and payloads, for one thread.
#[derive(Debug, Default)]
pub(crate) struct RecordMemory {
    /// Unused part of the current block.
    block: BytesMut,
}

impl RecordMemory {
    /// Copies bytes.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > MAX_SHARED_BYTES {
            return Bytes::copy_from_slice(bytes);
        }
        if self.block.capacity() < bytes.len() {
            self.block = BytesMut::with_capacity(BLOCK_BYTES);
        }
        self.block.extend_from_slice(bytes);
        self.block.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_small_ones_share_blocks() {
        let mut memory = RecordMemory::default();
        let mut copies = Vec::new();
        let lengths = [0, 1, 7, MAX_SHARED_BYTES, MAX_SHARED_BYTES + 1, 3 * BLOCK_BYTES];
        for round in 0..50_u8 {
            for length in lengths {
                let bytes = vec![round; length];
                copies.push((memory.copy(&bytes), bytes));
            }
        }
        assert!(copies.iter().all(|(copy, bytes)| copy == bytes));
        let (first, second) = (&copies[1].0, &copies[2].0);
        assert_eq!(
            first.as_ptr().wrapping_add(first.len()),
            second.as_ptr(),
            "one after the other"
        );
    }
}
