//! Table of process groups, as text in a file: a header, then one slot of a fixed length for each
//! group.
//!
//! ```text
//! keylane-children 1 boot=<uuid> pidns=<inode> file=<device>:<inode> session=<number> process=<number> tag=<hex>
//! <leader> <before> <after>
//! ```
//!
//! Lines are padded with spaces: the header to 256 bytes, a slot to 64. A slot without numbers is free. `before` and
//! `after` are milliseconds since the machine's start, between which the leader was started. An empty file has nothing
//! to look after. Nor has a file whose header is zeros: a power failure has lost the header, which is not synced, and
//! ended all processes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::process::Pid;

use crate::scan::PidScope as Machine;

/// Start of a table, with the version of its format.
const MAGIC: &str = "keylane-children 1";

/// Bytes of the header.
const HEADER: usize = 256;

/// Bytes of a slot.
const SLOT: usize = 64;

/// Number of slots by which a file grows, so that a later write of a slot needs no disk space.
const BLOCK: usize = 60;

/// Identity of the parent whose children a table lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableHeader {
    /// Where the numbers of processes mean anything.
    pub(crate) machine: Machine,
    /// Device and inode of the table. They invalidate a copy, whose original may be in use.
    pub(crate) file: String,
    /// Session of the parent, in which its children are unless they leave with `setsid`.
    pub(crate) session: i32,
    /// Process number of the parent, for messages.
    pub(crate) process: u32,
    /// Value of [`TAG`](crate::TAG) in the children's environment.
    pub(crate) tag: String,
}

/// A process group that was registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupSlot {
    pub(crate) leader: Pid,
    /// Milliseconds since the machine's start, taken before the leader was started.
    pub(crate) before: u64,
    /// Time after the leader was started, by the clock of `before`.
    pub(crate) after: u64,
}

/// Why a table was not read.
#[derive(Debug)]
pub(crate) enum TableReadError {
    Io(io::Error),
    Format,
}

/// Identity that differs between a table and its copy.
pub(crate) fn identity(file: &File) -> io::Result<String> {
    let file = file.metadata()?;
    Ok(format!("{}:{}", file.dev(), file.ino()))
}

/// Reads a table; none if it is empty, or if a power failure has lost its header.
pub(crate) fn read(file: &File) -> Result<Option<(TableHeader, Vec<GroupSlot>)>, TableReadError> {
    let length = file.metadata().map_err(TableReadError::Io)?.len();
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| TableReadError::Format)?];
    file.read_exact_at(&mut bytes, 0).map_err(TableReadError::Io)?;
    // Also true for no bytes. A header is in one sector, so a power failure leaves all of it or zeros.
    if bytes.iter().take(HEADER).all(|byte| *byte == 0) {
        return Ok(None);
    }
    let (header, slots) = bytes.split_at_checked(HEADER).ok_or(TableReadError::Format)?;
    let header = parse_header(header).ok_or(TableReadError::Format)?;
    // A last slot that is cut off was never written to: a group is registered by one write to a whole slot.
    let slots = slots.chunks_exact(SLOT).filter_map(parse_slot).collect();
    Ok(Some((header, slots)))
}

/// Writes a header over the existing content, and free slots; returns the number of slots.
pub(crate) fn begin(file: &File, header: &TableHeader) -> io::Result<usize> {
    file.set_len(0)?;
    let TableHeader { machine, file: identity, session, process, tag } = header;
    let text = format!(
        "{MAGIC} boot={} pidns={} file={identity} session={session} process={process} tag={tag}",
        machine.boot, machine.pid_namespace
    );
    file.write_all_at(&line(&text, HEADER), 0)?;
    grow(file, 0)
}

/// Adds free slots after the first `count`; returns the new number.
pub(crate) fn grow(file: &File, count: usize) -> io::Result<usize> {
    let free = line("", SLOT).repeat(BLOCK);
    file.write_all_at(&free, offset(count))?;
    Ok(count + BLOCK)
}

/// Writes a slot. One write of less than a page: a process that is killed has made it or not.
pub(crate) fn write(file: &File, index: usize, slot: Option<GroupSlot>) -> io::Result<()> {
    let text = slot.map_or_else(String::new, |GroupSlot { leader, before, after }| {
        format!("{} {before} {after}", leader.as_raw_nonzero())
    });
    file.write_all_at(&line(&text, SLOT), offset(index))
}

/// Removes all entries.
pub(crate) fn clear(file: &File) -> io::Result<()> {
    file.set_len(0)
}

fn offset(index: usize) -> u64 {
    (HEADER + index * SLOT) as u64
}

fn line(text: &str, length: usize) -> Vec<u8> {
    let mut line = text.as_bytes().to_vec();
    debug_assert!(line.len() < length, "{text}");
    line.resize(length - 1, b' ');
    line.push(b'\n');
    line
}

fn parse_header(bytes: &[u8]) -> Option<TableHeader> {
    let text = std::str::from_utf8(bytes).ok()?.strip_prefix(MAGIC)?;
    let field = |name: &str| {
        text.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let machine = Machine { boot: field("boot")?.into(), pid_namespace: field("pidns")?.into() };
    Some(TableHeader {
        machine,
        file: field("file")?.into(),
        session: field("session")?.parse().ok()?,
        process: field("process")?.parse().ok()?,
        tag: field("tag")?.into(),
    })
}

fn parse_slot(bytes: &[u8]) -> Option<GroupSlot> {
    let mut words = std::str::from_utf8(bytes).ok()?.split_ascii_whitespace();
    let leader = Pid::from_raw(words.next()?.parse().ok()?)?;
    let mut time = || words.next()?.parse().ok();
    Some(GroupSlot { leader, before: time()?, after: time()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> TableHeader {
        let machine = Machine { boot: "b-1".into(), pid_namespace: "pid:[7]".into() };
        let file = "64768:9".into();
        TableHeader { machine, file, session: 12, process: 34, tag: "56".repeat(16) }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let file = tempfile::tempfile().unwrap();
        assert!(read(&file).unwrap().is_none());
        begin(&file, &header()).unwrap();
        assert_eq!(read(&file).unwrap(), Some((header(), vec![])));
        let slot =
            |leader| GroupSlot { leader: Pid::from_raw(leader).unwrap(), before: 5, after: 9 };
        write(&file, 0, Some(slot(100))).unwrap();
        write(&file, BLOCK - 1, Some(slot(i32::MAX))).unwrap();
        assert_eq!(grow(&file, BLOCK).unwrap(), 2 * BLOCK);
        write(&file, BLOCK, Some(slot(102))).unwrap();
        write(&file, 0, None).unwrap();
        let read_back = read(&file).unwrap().unwrap();
        assert_eq!(read_back, (header(), vec![slot(i32::MAX), slot(102)]));
        clear(&file).unwrap();
        assert!(read(&file).unwrap().is_none());
    }

    /// A power failure can leave a file with its length and without its content.
    #[test]
    fn a_file_that_lost_its_content_in_a_power_failure_lists_nothing() {
        let file = tempfile::tempfile().unwrap();
        for length in [1, HEADER, HEADER + BLOCK * SLOT] {
            file.set_len(0).unwrap();
            file.set_len(length as u64).unwrap();
            assert!(read(&file).unwrap().is_none(), "{length} bytes");
        }
        begin(&file, &header()).unwrap();
        file.write_all_at(&[0; HEADER], 0).unwrap();
        write(&file, 0, Some(GroupSlot { leader: Pid::INIT, before: 5, after: 9 })).unwrap();
        assert!(read(&file).unwrap().is_none(), "slots without a header");
    }

    #[test]
    fn a_file_without_a_process_table_is_not_used_as_one() {
        let file = tempfile::tempfile().unwrap();
        for text in ["something else".repeat(100), "keylane-children 2".into(), MAGIC.into()] {
            file.set_len(0).unwrap();
            file.write_all_at(text.as_bytes(), 0).unwrap();
            assert!(matches!(read(&file), Err(TableReadError::Format)), "{text}");
        }
    }
}
