//! Tracks which positions of a stream are complete while records complete out of order, and encodes
//! the progress for a commit.
//!
//! The *watermark* is the lowest incomplete position. Completed positions above it are encoded in a
//! short text beside it, the *map*, so that a restart does not repeat them. [`Tracker`] maintains
//! both; [`Progress`] is a snapshot; [`Progress::encode`] and [`decode()`] convert it to text and
//! back.
//!
//! All of it is plain code without clocks, locks or I/O. One owner (a partition's thread, a file's
//! reader) reports deliveries and completions.
//!
//! # Examples
//! ```
//! use keylane_stream::Position;
//! use keylane_stream::tracker::{DecodedMap, OffsetMapLimit, OffsetMapPolicy, TakeOutcome, Tracker, decode};
//!
//! let at = Position::new;
//! let mut tracker = Tracker::new(at(100), OffsetMapLimit::KAFKA);
//! for number in 100..104 {
//!     assert!(tracker.may_take(at(number)));
//!     assert_eq!(tracker.take(at(number)), TakeOutcome::New);
//! }
//! tracker.complete(at(102))?;
//! assert_eq!(tracker.watermark(), at(100));
//!
//! // The process commits this, and dies.
//! let text = tracker.progress().encode(b"orders, partition 3");
//!
//! let found = decode(at(100), &text, b"orders, partition 3", OffsetMapPolicy::default())?;
//! let DecodedMap::Progress(progress) = found else { unreachable!("it was written above") };
//! let mut tracker = Tracker::resume(&progress, OffsetMapLimit::KAFKA);
//! assert_eq!(tracker.take(at(100)), TakeOutcome::New);
//! assert_eq!(tracker.take(at(101)), TakeOutcome::New);
//! assert_eq!(tracker.take(at(102)), TakeOutcome::Done);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod completed_map;
mod confluent_offset_map;
mod decode;
mod limit;
mod map_error;
mod map_layout;
mod position_set;
mod progress;
mod rice;
mod state;

pub use decode::{
    DecodedMap, ForeignMapPolicy, OffsetMapPolicy, UnreadableMapPolicy, decode, highest_epoch,
};
pub use limit::OffsetMapLimit;
pub use map_error::OffsetMapError;
pub use progress::Progress;
pub use state::{NotInFlight, TakeOutcome, Tracker};
