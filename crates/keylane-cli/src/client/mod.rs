//! `keylane submit`, `status`, `watch`, `results`, `logs`, `cancel`, `pause`, `resume`, `retry`, `keys`, `schedules`,
//! `audit` and `top`: what asks a running `keylane serve`, and knows nothing but its public API.
//!
//! ```text
//! options ─▶ server ─▶ submit, status, results, logs, steer, keys, schedules, audit, top
//! (address,  (requests,       │
//!  token)     refusals)       ▼
//!                      follow ─▶ board
//!                      (events, else polls)  (bars, else lines)
//! ```

mod audit;
mod board;
mod follow;
mod keys;
mod list;
mod logs;
mod options;
mod refusal;
mod results;
mod schedules;
mod server;
mod sse;
mod status;
mod steer;
mod submit;
mod subtasks;
mod top;
mod upload;
mod watch;
mod words;

pub(crate) use audit::{AuditArgs, run as audit};
pub(crate) use keys::{KeysArgs, run as keys};
pub(crate) use logs::{LogsArgs, run as logs};
pub(crate) use results::{ResultsArgs, run as results};
pub(crate) use schedules::{SchedulesArgs, run as schedules};
pub(crate) use status::{StatusArgs, run as status};
pub(crate) use steer::{
    CancelArgs, PauseArgs, ResumeArgs, RetryArgs, cancel, pause, resume, retry,
};
pub(crate) use submit::{SubmitArgs, run as submit};
pub(crate) use top::{TopArgs, run as top};
pub(crate) use watch::{WatchArgs, run as watch};
