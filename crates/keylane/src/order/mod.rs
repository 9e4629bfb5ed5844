//! Decides which tasks may run now: the lanes, the claims on them, and what waits behind what.
//!
//! `README.md` beside this file has the protocol, its states and the proof sketch.

mod circle;
mod claims;
mod descriptor;
mod entry;
mod few;
mod hand;
mod inbox;
mod index;
mod lanes;
mod queue;
mod rate;
mod recent;
mod registry;
mod rollup;
mod roster;
mod watch;

pub(crate) use circle::{Inquiry, Round, Seated};
pub(crate) use claims::{Claim, Mode, Repr, Weighed};
pub use claims::{Claims, IntoClaims};
pub use descriptor::Compatibility;
pub(crate) use descriptor::Descriptor;
pub(crate) use entry::{Entry, Label};
pub(crate) use hand::{Hand, InHand};
pub(crate) use inbox::Inbox;
pub(crate) use lanes::{
    Before, Debris, Found, Held, Lanes, Reasons, Recall, Replaced, Stop, TakenKey, Unrun,
    take_rollup,
};
pub(crate) use rate::Bucket;
pub use rate::Rate;
pub(crate) use registry::{Member, Registry};
pub(crate) use rollup::{Role, Rollup, Scope, merge_claims};
pub(crate) use roster::Look;
pub(crate) use watch::Replacement;
