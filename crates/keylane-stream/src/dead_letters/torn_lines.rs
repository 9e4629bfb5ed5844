//! Lines that an interrupted write has left incomplete in a file of JSON lines, and their removal.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Smallest unit that reaches a disk as a whole, in bytes.
const SECTOR: u64 = 512;

/// Maximum length of the text of a removed line that is reported, in bytes.
const MAX_TEXT: usize = 200;

/// A line that was removed from a file of dead letters, because an interrupted write has left it
/// incomplete. Its letter was never acknowledged, so its record is handled again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemovedLine {
    /// Offset of the line in the file, in bytes.
    pub offset: u64,
    /// Length of the line, in bytes.
    pub length: u64,
    /// Beginning of the line, with escapes for bytes that are not printable ASCII.
    pub text: String,
}

impl RemovedLine {
    fn new(offset: u64, line: &[u8]) -> Self {
        let text = line[..line.len().min(MAX_TEXT)].escape_ascii().to_string();
        RemovedLine { offset, length: line.len() as u64, text }
    }
}

impl fmt::Display for RemovedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemovedLine { offset, length, text } = self;
        write!(
            f,
            "removed an incomplete line of {length} bytes at byte {offset} that an interrupted \
             write has left; it begins with: {text}"
        )
    }
}

/// Removes lines that a power failure has torn from the last `max_unsynced` bytes of the file, and
/// returns them. Other lines stay, whatever they contain.
pub(super) fn remove_torn(file: &mut File, max_unsynced: u64) -> io::Result<Vec<RemovedLine>> {
    let length = file.metadata()?.len();
    let begin = end_of_lines(file, length.saturating_sub(max_unsynced))?;
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    Read::by_ref(file).take(length - begin).read_to_end(&mut found)?;
    let (mut removed, mut whole, mut offset) = (Vec::new(), Vec::new(), begin);
    for line in found.split_inclusive(|byte| *byte == b'\n') {
        if is_torn(line, offset, length) {
            removed.push(RemovedLine::new(offset, line));
        } else {
            whole.extend_from_slice(line);
        }
        offset += line.len() as u64;
    }
    if !removed.is_empty() {
        replace(file, begin, (&found, &whole))?;
    }
    Ok(removed)
}

/// Removes the part of the file after its last line end, and returns it.
pub(super) fn remove_incomplete(file: &mut File) -> io::Result<Option<RemovedLine>> {
    let length = file.metadata()?.len();
    let end = end_of_lines(file, length)?;
    if end == length {
        return Ok(None);
    }
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(end))?;
    Read::by_ref(file).take(length - end).read_to_end(&mut line)?;
    file.set_len(end)?;
    Ok(Some(RemovedLine::new(end, &line)))
}

/// Replaces the bytes `found` at `begin`, which reach to the end of the file, by the shorter
/// `whole`.
fn replace(file: &mut File, begin: u64, (found, whole): (&[u8], &[u8])) -> io::Result<()> {
    let equal = found.iter().zip(whole).take_while(|(found, whole)| found == whole).count();
    // The file is cut last, so that no whole line is missing from it if the process is killed. The
    // zeros are an incomplete line until then.
    let mut rest = whole[equal..].to_vec();
    rest.resize(found.len() - equal, 0);
    file.seek(SeekFrom::Start(begin + equal as u64))?;
    file.write_all(&rest)?;
    // The next append syncs the file.
    file.set_len(begin + whole.len() as u64)
}

/// Returns whether the line at `offset` has no end, or a part of it is missing: whole sectors of
/// zeros, or zeros from the beginning of the line to the end of its sector. The text of a letter
/// has no zeros.
fn is_torn(line: &[u8], offset: u64, length: u64) -> bool {
    if line.last() != Some(&b'\n') {
        return true;
    }
    let is_edge = |at: usize| {
        let at_file = offset + at as u64;
        at == 0 || at_file.is_multiple_of(SECTOR) || at_file == length
    };
    let is_zero = |at: usize| line.get(at) == Some(&0);
    let begins = (0..line.len()).filter(|at| is_zero(*at) && (*at == 0 || !is_zero(at - 1)));
    let mut missing = begins.filter(|at| is_edge(*at));
    missing.any(|begin| {
        let end = (begin..line.len()).find(|at| !is_zero(*at)).unwrap_or(line.len());
        end > begin && is_edge(end)
    })
}

/// Returns the position after the last line end before `end`.
fn end_of_lines(file: &mut File, mut end: u64) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut buffer = Vec::new();
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        buffer.clear();
        Read::by_ref(file).take(end - begin).read_to_end(&mut buffer)?;
        if let Some(at) = buffer.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of 1,400 bytes at offset 200, of which these bytes are zeros.
    fn torn(zeros: std::ops::Range<usize>) -> bool {
        let mut line = vec![b'x'; 1399];
        line.push(b'\n');
        line[zeros].fill(0);
        is_torn(&line, 200, 1600)
    }

    #[test]
    fn a_line_is_torn_if_whole_sectors_are_missing() {
        assert!(torn(312..824), "a sector");
        assert!(torn(312..1336), "two sectors");
        assert!(torn(0..312), "the rest of the sector in which the line begins");
        assert!(torn(0..824));
        assert!(is_torn(b"{\"a\":", 0, 5), "no end");
    }

    #[test]
    fn zeros_that_no_missing_sector_leaves_are_content() {
        for zeros in [1..2, 0..5, 312..400, 300..824, 600..900] {
            assert!(!torn(zeros.clone()), "{zeros:?}");
        }
        assert!(!is_torn(b"not JSON\n", 0, 9));
        assert!(!is_torn(b"\n", 0, 1));
    }
}
