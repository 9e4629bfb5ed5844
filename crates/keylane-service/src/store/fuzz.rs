//! Fuzz targets: rows of the store, and lines of an export. What is read is the same when it is written again.

use keylane_storage::checksum::seal;

use super::chunk::{Chunk, place_of_body};
use super::chunk_keys::ChunkKeys;
use super::chunk_packer::ChunkPacker;
use super::line::ExportLine;
use super::{logs, row_numbers, started_attempts};
use crate::JobNumber;

const JOB: JobNumber = JobNumber(5);

/// Row of subtasks: `input` is their number, one byte, and the content before the checksum. The
/// highest bit of the number selects version 2 of the encoding.
pub fn fuzz_chunk(input: &[u8]) {
    let Some((count, content)) = input.split_first() else { return };
    let (is_second, count, first) = (count & 0x80 != 0, u32::from(count & 0x7f), 7);
    let mut sealed = content.to_vec();
    let place = place_of_body(JOB, first, count);
    seal(&mut sealed, if is_second { &place } else { &place[..2] });
    if let Some(keys) = ChunkKeys::find(JOB, first, count, &sealed) {
        assert_eq!(keys.subtasks().count() as u32, keys.end() - first);
    }
    let Some(chunk) = Chunk::open(JOB, first, count, &sealed) else { return };
    assert_eq!(chunk.subtasks().count(), count as usize);
    assert!(Chunk::open(JOB, first + 1, count, &sealed).is_none(), "a row at another place");
    let mut packer = ChunkPacker::new(JOB, first);
    for subtask in chunk.subtasks() {
        let keys: Vec<_> = subtask.keys().collect();
        assert!(packer.push(&keys, subtask.payload()).is_none(), "they were in one chunk");
    }
    let Some(packed) = packer.seal() else { return };
    let again = Chunk::open(JOB, first, count, packed.sealed()).expect("a packed chunk is read");
    for (one, other) in chunk.subtasks().zip(again.subtasks()) {
        assert!(one.keys().eq(other.keys()) && one.payload() == other.payload());
    }
}

/// Row of marks: `input` is the content before the checksum.
pub fn fuzz_marks(input: &[u8]) {
    let mut sealed = input.to_vec();
    seal(&mut sealed, &[3]);
    let Some(read) = started_attempts::decode(3, &sealed) else { return };
    assert!(started_attempts::decode(4, &sealed).is_none(), "a row at another place");
    let written = started_attempts::encode(3, &read);
    assert_eq!(started_attempts::decode(3, &written), Some(read));
}

/// Row of a log: `input` is the content before the checksum.
pub fn fuzz_log(input: &[u8]) {
    let place = row_numbers::place(JOB, 7);
    let mut sealed = input.to_vec();
    seal(&mut sealed, &[place, 1]);
    let Some(read) = logs::decode(place, 1, &sealed) else { return };
    assert!(logs::decode(place, 2, &sealed).is_none(), "a row at another place");
    let written = logs::encode(place, 1, &read);
    assert_eq!(logs::decode(place, 1, &written), Some(read));
}

/// Line of an export.
pub fn fuzz_export_line(input: &[u8]) {
    let Ok(line) = serde_json::from_slice::<ExportLine>(input) else { return };
    let written = serde_json::to_string(&line).expect("a line is written");
    let again: ExportLine = serde_json::from_str(&written).expect("a written line is read");
    assert_eq!(serde_json::to_string(&again).unwrap(), written);
    if let ExportLine::Subtask { keys, shared_keys, payload } = &line {
        for text in keys.iter().chain(shared_keys).chain([payload]) {
            let Ok(bytes) = super::line::decode(text) else { continue };
            assert_eq!(super::line::decode(&super::line::encode(&bytes)), Ok(bytes));
        }
    }
}
