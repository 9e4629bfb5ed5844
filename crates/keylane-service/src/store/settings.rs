use super::Damage;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How large the file and SQLite's log beside it may become together; none for no bound but the disk's. A
    /// transaction may go beyond it, of at most 8 MiB and one submission, and so may the log for as long as a reader
    /// keeps it from being emptied, by at most 16 MiB: then nothing is written. Default: none.
    pub most_bytes: Option<u64>,
    /// How many bytes of chunks that were read or written are kept in memory. Default: 64 MiB.
    pub most_cache_bytes: usize,
    /// How many bytes of accepted jobs and chunks wait for the writer; who comes then waits for room,
    /// first come first served. Default: 16 MiB.
    pub most_waiting_bytes: usize,
    /// Whether recovery gives an unfinished job that is damaged the state
    /// [`Damaged`](super::JobState::Damaged) and goes on with the others, instead of refusing. For an
    /// operator to say, once. Default: no.
    pub set_damaged_aside: bool,
}

impl Default for Settings {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Settings {
            most_bytes: None,
            most_cache_bytes: 64 * MIB,
            most_waiting_bytes: 16 * MIB,
            set_damaged_aside: false,
        }
    }
}

/// What a store has, and what of it is damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many jobs there are.
    pub jobs: u64,
    /// How many of them have not ended.
    pub unfinished: u64,
    /// How many subtasks their chunks have.
    pub subtasks: u64,
    /// How many outcomes were recorded.
    pub outcomes: u64,
    /// All that is not what was written; nothing if all is well.
    pub damage: Vec<Damage>,
}
