//! Decides what follows a failed attempt: the time of the next one, or the action after the last.
//!
//! Plain rules: time, class of the error and randomness are passed in. The caller holds the
//! record's lane meanwhile, on a timer and without a worker.
//!
//! # Examples
//! ```
//! use std::time::{Duration, Instant};
//! use keylane_stream::retry::{
//!     RecordFailures, Backoff, RetryLimit, OnExhausted, RetryDecision, RetryPolicy, RetryRule,
//! };
//!
//! #[derive(PartialEq, Eq, Hash)]
//! enum Class { Timeout, BadRecord }
//!
//! let patient = RetryRule {
//!     limit: RetryLimit::attempts(3),
//!     backoff: Backoff { first: Duration::from_millis(100), ..Backoff::default() },
//!     on_exhausted: OnExhausted::DeadLetter,
//! };
//! let policy = RetryPolicy::new(patient)?
//!     .with(Class::BadRecord, RetryRule { limit: RetryLimit::attempts(1), ..patient })?;
//!
//! let now = Instant::now();
//! let mut attempts = RecordFailures::default();
//! let decision = policy.failed(&mut attempts, &Class::Timeout, now, || 7);
//! let RetryDecision::Retry { at, attempt } = decision else {
//!     unreachable!("it was the first of three");
//! };
//! assert!(at <= now + Duration::from_millis(100));
//! assert_eq!(attempt, 2);
//! let decision = policy.failed(&mut attempts, &Class::BadRecord, now, || 7);
//! assert_eq!(decision, RetryDecision::Exhausted(OnExhausted::DeadLetter));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod policy;

pub use keylane::{Backoff, Jitter};
pub use policy::{
    OnExhausted, RecordFailures, RetryDecision, RetryLimit, RetryPolicy, RetryRule, RuleError,
};
