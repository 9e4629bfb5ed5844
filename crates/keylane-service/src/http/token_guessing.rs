//! Delayed answers to wrong tokens, against guessing, with a bounded rate of log lines.
//!
//! The first [`FREE`] wrong tokens of an address are answered at once; so is a client with a
//! replaced token. Each further one is answered later than the one before, up to [`MAX_DELAY`], and
//! its connection is closed. An address with [`MAX_WAITING`] delayed answers is refused at once
//! with 429. One wrong token is forgotten each second.
//!
//! A valid token is answered at once, whatever its address sent before: it is compared first.
//! Requests without a token are not counted.
//!
//! At most [`MAX_ADDRESSES`] are remembered; a new one replaces the one with the fewest wrong
//! tokens. IPv6 addresses count by their first 64 bits, because one client may have them all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of wrong tokens answered at once.
const FREE: u32 = 10;

/// Time for which a wrong token counts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);

/// Additional delay for each further wrong token.
const STEP: Duration = Duration::from_millis(200);

/// Maximum delay of an answer.
const MAX_DELAY: Duration = Duration::from_secs(3);

/// Maximum number of delayed answers to one address.
const MAX_WAITING: u32 = 16;

/// Maximum number of remembered addresses: about 400 KB.
const MAX_ADDRESSES: usize = 4096;

/// Minimum time between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Wrong tokens of all addresses.
#[derive(Debug, Default)]
pub(super) struct WrongTokens(Mutex<GuessTable>);

#[derive(Debug, Default)]
struct GuessTable {
    addresses: HashMap<IpAddr, WrongTokenSource>,
    /// Time of the last log line.
    logged: Option<Instant>,
    /// Number of wrong tokens since the last log line.
    untold: u64,
}

/// Address with wrong tokens.
#[derive(Clone, Copy, Debug)]
struct WrongTokenSource {
    /// Number of wrong tokens that are not forgotten.
    wrong: u32,
    /// Time from which the next one is forgotten.
    since: Instant,
    /// Number of delayed answers.
    waiting: u32,
}

impl WrongTokenSource {
    fn forget(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        let seconds = passed.as_secs() / FORGOTTEN_AFTER.as_secs();
        self.wrong = self.wrong.saturating_sub(u32::try_from(seconds).unwrap_or(u32::MAX));
        self.since += FORGOTTEN_AFTER * u32::try_from(seconds).unwrap_or(0);
    }
}

/// Decision about a wrong token.
#[derive(Debug)]
pub(super) enum WrongTokenDecision {
    /// Answer at once.
    None,
    /// Answer after this delay, and close the connection. The guard is kept until then.
    Delay(Duration, DelayedAnswer),
    /// Refuse: too many answers to the address are delayed.
    Refuse,
}

/// Guard of a delayed answer.
#[derive(Debug)]
pub(super) struct DelayedAnswer {
    guesses: Arc<WrongTokens>,
    address: IpAddr,
}

impl Drop for DelayedAnswer {
    fn drop(&mut self) {
        if let Some(guesser) = self.guesses.state().addresses.get_mut(&self.address) {
            guesser.waiting = guesser.waiting.saturating_sub(1);
        }
    }
}

/// Returns the network that one client may own.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

impl WrongTokens {
    fn state(&self) -> MutexGuard<'_, GuessTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a wrong token from this address, and decides about its answer.
    pub(super) fn wrong(self: &Arc<Self>, peer: IpAddr, now: Instant) -> WrongTokenDecision {
        let address = network(peer);
        let mut state = self.state();
        if let Some(untold) = state.tell(now) {
            tracing::warn!(%peer, not_logged = untold, "a request with a wrong token");
        }
        let guesser = state.guesser(address, now);
        guesser.forget(now);
        guesser.wrong = guesser.wrong.saturating_add(1);
        let beyond = guesser.wrong.saturating_sub(FREE);
        if beyond == 0 {
            return WrongTokenDecision::None;
        }
        if guesser.waiting >= MAX_WAITING {
            return WrongTokenDecision::Refuse;
        }
        guesser.waiting += 1;
        let delay = STEP.saturating_mul(beyond).min(MAX_DELAY);
        WrongTokenDecision::Delay(delay, DelayedAnswer { guesses: Arc::clone(self), address })
    }
}

impl GuessTable {
    /// Returns the number of unlogged wrong tokens, if a log line is due.
    fn tell(&mut self, now: Instant) -> Option<u64> {
        let passed = |logged: Instant| now.saturating_duration_since(logged);
        if self.logged.is_some_and(|logged| passed(logged) < LOG_INTERVAL) {
            self.untold += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.untold))
    }

    fn guesser(&mut self, address: IpAddr, now: Instant) -> &mut WrongTokenSource {
        if self.addresses.len() >= MAX_ADDRESSES && !self.addresses.contains_key(&address) {
            self.make_room(now);
        }
        let new = WrongTokenSource { wrong: 0, since: now, waiting: 0 };
        self.addresses.entry(address).or_insert(new)
    }

    /// Removes the addresses whose wrong tokens are all forgotten, or else the one with the fewest.
    fn make_room(&mut self, now: Instant) {
        self.addresses.values_mut().for_each(|guesser| guesser.forget(now));
        self.addresses.retain(|_, guesser| guesser.wrong > 0 || guesser.waiting > 0);
        if self.addresses.len() >= MAX_ADDRESSES {
            let fewest = self.addresses.iter().min_by_key(|(_, guesser)| guesser.wrong);
            if let Some(address) = fewest.map(|(address, _)| *address) {
                self.addresses.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> IpAddr {
        IpAddr::from(last.to_be_bytes())
    }

    fn delay(consequence: &WrongTokenDecision) -> Option<Duration> {
        match consequence {
            WrongTokenDecision::None => Some(Duration::ZERO),
            WrongTokenDecision::Delay(delay, _) => Some(*delay),
            WrongTokenDecision::Refuse => None,
        }
    }

    #[test]
    fn wrong_tokens_are_answered_later_and_later_and_forgotten_one_a_second() {
        let (guesses, now) = (Arc::new(WrongTokens::default()), Instant::now());
        let wrong = |last, at| delay(&guesses.wrong(address(last), now + at)).unwrap();
        assert!((0..FREE).all(|_| wrong(1, Duration::ZERO) == Duration::ZERO));
        assert_eq!([1, 2, 3].map(|_| wrong(1, Duration::ZERO)), [STEP, STEP * 2, STEP * 3]);
        assert!((0..100).any(|_| wrong(1, Duration::ZERO) == MAX_DELAY));
        // Other addresses are unaffected.
        assert_eq!(wrong(2, Duration::ZERO), Duration::ZERO);
        let seconds = FORGOTTEN_AFTER * 15;
        assert_eq!(wrong(1, seconds), STEP);
        assert_eq!(wrong(1, seconds + FORGOTTEN_AFTER * 1000), Duration::ZERO);
    }

    #[test]
    fn an_address_has_a_bounded_number_of_answers_to_come() {
        let (guesses, now) = (Arc::new(WrongTokens::default()), Instant::now());
        let wrong = |last| guesses.wrong(address(last), now);
        (0..FREE).for_each(|_| drop(wrong(1)));
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| wrong(1)).collect();
        assert!(waiting.iter().all(|one| matches!(one, WrongTokenDecision::Delay(..))));
        assert!(matches!(wrong(1), WrongTokenDecision::Refuse));
        waiting.pop();
        assert!(matches!(wrong(1), WrongTokenDecision::Delay(..)));
    }

    #[test]
    fn the_memory_is_bounded_and_the_worst_stay() {
        let (guesses, now) = (Arc::new(WrongTokens::default()), Instant::now());
        (0..=FREE).for_each(|_| drop(guesses.wrong(address(0), now)));
        (1..10_000).for_each(|last| drop(guesses.wrong(address(last), now)));
        assert_eq!(guesses.state().addresses.len(), MAX_ADDRESSES);
        assert!(matches!(guesses.wrong(address(0), now), WrongTokenDecision::Delay(..)));
        // One IPv6 client has many addresses.
        let guesses = Arc::new(WrongTokens::default());
        let of_one = |last| IpAddr::from(Ipv6Addr::new(1, 2, 3, 4, last, 6, 7, last));
        (0..100).for_each(|last| drop(guesses.wrong(of_one(last), now)));
        assert_eq!(guesses.state().addresses.len(), 1);
    }

    #[test]
    fn the_log_is_told_at_most_once_a_second_and_how_many_it_was_not_told_of() {
        let (mut state, now) = (GuessTable::default(), Instant::now());
        assert_eq!(state.tell(now), Some(0));
        assert_eq!([1, 2, 3].map(|_| state.tell(now)), [None; 3]);
        assert_eq!(state.tell(now + LOG_INTERVAL), Some(3));
        assert_eq!(state.tell(now + LOG_INTERVAL), None);
    }
}
