//! Audit log: records every operator action with its time, caller, target and outcome.
//!
//! **An action and its entry are committed together, or neither is**: the entry is one of the
//! changes that the action submits to the store, in one transaction with the others. An action that
//! changes nothing on the disk, or that was refused, has a transaction of its own. Either way the
//! entry is on the disk before the action is answered.
//!
//! An [`AuditedRequest`] accompanies a request through the engine. The code that creates the
//! request's changes adds the entry to them ([`AuditLog::add`]), and then the context is *settled*. A
//! context that comes back unsettled, because the request was refused or had nothing to do, is
//! written before the answer ([`AuditLog::log_rest`]). So each action has one entry, and a request that
//! only repeats an earlier answer (by its idempotency key) has none.
//!
//! **The log is bounded**: by age, and by a number of entries that each new one enforces. An entry
//! is small, because all texts are cut, and payloads are never logged. A caller without the
//! required role cannot displace other entries: such refusals are counted, and one per hour and
//! token is written.

mod log;
mod operator_action;

pub(crate) use log::{ActionAnswer, AuditLog};
pub(crate) use operator_action::{AuditedRequest, OperatorAction};
