//! Decides which tasks may run now: the lanes, the claims on them, and what waits behind what.
//!
//! `README.md` beside this file has the protocol, its states and the proof sketch.

mod claims;
mod entry;
mod hand;
mod inbox;
mod index;
mod lanes;
mod queue;
mod recent;
mod rollup;
mod watch;

pub(crate) use claims::{Claim, Mode, Repr, Weighed};
pub use claims::{Claims, IntoClaims};
pub(crate) use entry::{Entry, Label};
pub(crate) use hand::{Hand, InHand};
pub(crate) use inbox::Inbox;
pub(crate) use lanes::{Held, Lanes, Reasons, Replaced, Stop, Unrun};
pub(crate) use rollup::{Role, Rollup, Scope, merge_claims};
pub(crate) use watch::Replacement;
