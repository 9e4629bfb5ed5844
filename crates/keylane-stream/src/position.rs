//! Position of a record in its stream.

use std::fmt;

/// Position of a record in its stream: Kafka's offset, the journal's number, a file's line.
///
/// - Positions of a stream ascend, and a record keeps its position.
/// - There may be gaps: a position need not have a record.
/// - The maximum is 2⁶³ − 2, so that the position after it still fits the signed integers of
///   brokers and SQLite.
///
/// # Examples
/// ```
/// use keylane_stream::Position;
///
/// let position = Position::new(41);
/// assert_eq!(position.next().get(), 42);
/// assert!(Position::checked(-1).is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// First position of a stream.
    pub const ZERO: Position = Position(0);

    /// One past the last possible position. No record has it; it can only be a watermark.
    pub const END: Position = Position(i64::MAX as u64);

    /// Creates a position from a trusted number.
    ///
    /// # Panics
    /// If `number` is beyond [`END`](Self::END). Use [`checked`](Self::checked) for numbers from
    /// outside.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        assert!(number <= Self::END.0, "positions end at 2^63 - 1");
        Position(number)
    }

    /// Creates a position from a signed number, as Kafka and SQLite have it; `None` if it is
    /// negative.
    #[must_use]
    pub const fn checked(number: i64) -> Option<Self> {
        if number < 0 { None } else { Some(Position(number as u64)) }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the signed number that SQLite and Kafka store.
    #[must_use]
    pub const fn signed(self) -> i64 {
        self.0 as i64
    }

    /// Returns the next position.
    ///
    /// # Panics
    /// At [`END`](Self::END), which no record has.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// Returns the position `steps` later, if there is one.
    #[must_use]
    pub const fn after(self, steps: u64) -> Option<Self> {
        match self.0.checked_add(steps) {
            Some(number) if number <= Self::END.0 => Some(Position(number)),
            _ => None,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
