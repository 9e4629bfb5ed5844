use std::fmt;

/// The place of a record in its stream: Kafka's offset, the journal's number, a file's line.
///
/// - Positions of a stream rise, and a record keeps its own for ever.
/// - There may be gaps: not every position need have a record.
/// - They go up to 2⁶³ − 2, so that the place after any of them fits what brokers and SQLite store.
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
    /// The first place of a stream.
    pub const ZERO: Position = Position(0);

    /// One past the last place of which a record can be. It is itself only ever a place to go on from.
    pub const END: Position = Position(i64::MAX as u64);

    /// The place `number`.
    ///
    /// # Panics
    /// If it is beyond [`END`](Self::END). [`checked`](Self::checked) is for numbers from outside.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        assert!(number <= Self::END.0, "positions end at 2^63 - 1");
        Position(number)
    }

    /// The place `number` of a client that counts with a sign, as Kafka's and SQLite's do; none for
    /// what is below zero.
    #[must_use]
    pub const fn checked(number: i64) -> Option<Self> {
        if number < 0 { None } else { Some(Position(number as u64)) }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As the signed number that SQLite and Kafka store.
    #[must_use]
    pub const fn signed(self) -> i64 {
        self.0 as i64
    }

    /// The place after it.
    ///
    /// # Panics
    /// At [`END`](Self::END), of which no record can be.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// The place `steps` after it, if there is one.
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
