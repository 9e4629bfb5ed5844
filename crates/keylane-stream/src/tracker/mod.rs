//! Decides what may be committed while records end out of order, and remembers across a restart what
//! has been done beyond that.
//!
//! The *watermark* is the lowest position that is not done. What lies above it and is done is written
//! down in a few bytes beside it, the *map*, so that a restart does not repeat it. [`Tracker`] keeps
//! both while records come and end; [`Progress`] is a snapshot of them; [`Progress::encode`] and
//! [`read`] turn that into text and back.
//!
//! All of it is plain: no clock, no lock, no I/O. One owner (a partition's thread, a file's reader)
//! tells it what comes and what ends.
//!
//! # Examples
//! ```
//! use keylane_stream::Position;
//! use keylane_stream::tracker::{Found, MapLimit, Policy, Taken, Tracker, read};
//!
//! let at = Position::new;
//! let mut tracker = Tracker::new(at(100), MapLimit::KAFKA);
//! for number in 100..104 {
//!     assert!(tracker.may_take(at(number)));
//!     assert_eq!(tracker.take(at(number)), Taken::New);
//! }
//! tracker.complete(at(102))?;
//! assert_eq!(tracker.watermark(), at(100));
//!
//! // The process commits this, and dies.
//! let text = tracker.progress().encode(b"orders, partition 3");
//!
//! let found = read(at(100), &text, b"orders, partition 3", Policy::default())?;
//! let Found::Progress(progress) = found else { unreachable!("it was written above") };
//! let mut tracker = Tracker::resume(&progress, MapLimit::KAFKA);
//! assert_eq!(tracker.take(at(100)), Taken::New);
//! assert_eq!(tracker.take(at(101)), Taken::New);
//! assert_eq!(tracker.take(at(102)), Taken::Done);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bits;
mod limit;
mod line;
mod map;
mod parallel_consumer;
mod progress;
mod read;
mod window;

pub use limit::MapLimit;
pub use progress::Progress;
pub use read::{Foreign, Found, MapError, Policy, Unreadable, highest_epoch, read};
pub use window::{NotInFlight, Taken, Tracker};
