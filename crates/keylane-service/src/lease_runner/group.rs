//! A group of kinds with a common number of attempts: claims leases, runs their attempts, extends them, and reports their ends.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use keylane_process::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::children::ChildProcesses;
use super::former_leases::FormerProcess;
use super::lease_api::{LeaseApi, LeaseApiError, LeaseTransport};
use super::leased_attempt::RunningLease;
use super::leased_kind::LeasedKind;
use crate::handle::BoxFuture;
use crate::wire::{Claim, CompleteResults, HeartbeatBatch, HeartbeatResults, Lease, LeaseEnd};

/// Time that a claim waits for its first lease.
const CLAIM_WAIT: Duration = Duration::from_secs(20);

/// Pause after a request without an answer.
const PAUSE: Duration = Duration::from_millis(300);

/// Time for which a kind that the server does not lease is not asked for.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// Maximum number of leases in a request.
const MAX_LEASES: usize = 1000;

/// Size of results and logs from which on a report has no further end, in bytes.
const REPORT_BYTES: usize = 256 * 1024;

/// What a group runs, and whence it gets it.
pub(super) struct GroupSettings {
    pub(super) kinds: Arc<BTreeMap<String, LeasedKind>>,
    /// Maximum number of attempts at the same time, unless the handler has one.
    pub(super) slots: usize,
    /// Way to the owner of the store, if there is one.
    pub(super) transport: watch::Receiver<Option<Arc<dyn LeaseTransport>>>,
    pub(super) children: Arc<ChildProcesses>,
    pub(super) former: Arc<FormerProcess>,
    /// Cancelled when nothing more is to be leased.
    pub(super) draining: CancellationToken,
    /// Whether nothing is to be leased for now.
    pub(super) paused: watch::Receiver<bool>,
    /// Cancelled when running attempts are to end.
    pub(super) cancelling: CancellationToken,
}

/// State of a group's task.
pub(super) struct Group {
    settings: GroupSettings,
    /// Maximum number of attempts at the same time.
    most: usize,
    /// Leases until the ends of their attempts are known here.
    running: BTreeMap<String, RunningLease>,
    attempts: JoinSet<LeaseEnd>,
    /// Ends that no report under way has.
    ended: Vec<LeaseEnd>,
    /// Number of leases that the claims under way can bring.
    claimed: usize,
    /// Kinds that the server does not lease, or whose leases cannot be used, with the moment at which they are asked for again.
    refused: BTreeMap<String, Instant>,
    /// Before that nothing is sent, because the last request had no answer.
    pause_until: Option<Instant>,
    /// Whether the log says that requests have no answer, until one has.
    is_told: bool,
    children: Registry,
}

/// Future of an answer.
type Answer<A> = BoxFuture<Result<A, LeaseApiError>>;

/// Requests under way: a report with its ends, and a heartbeat with its leases.
#[derive(Default)]
struct Requests {
    /// Ends the leases of the former process.
    former: Option<Answer<()>>,
    claim: Option<(Sent, Answer<Claim>)>,
    report: Option<(Sent, Vec<LeaseEnd>, Answer<CompleteResults>)>,
    heartbeat: Option<(Sent, Vec<String>, Answer<HeartbeatResults>)>,
}

/// When a request was sent, and the kinds and number of leases that it claims.
struct Sent {
    at: Instant,
    kinds: Vec<String>,
    claimed: usize,
}

/// Returns the end of a lease whose attempt does not begin.
fn released(id: String) -> LeaseEnd {
    LeaseEnd { id, release: Some(true), ..LeaseEnd::default() }
}

/// Returns the answer of a request; never without a request.
async fn answer<T>(request: Option<&mut BoxFuture<T>>) -> T {
    match request {
        Some(request) => request.await,
        None => pending().await,
    }
}

impl Group {
    pub(super) fn new(settings: GroupSettings) -> Self {
        let most = settings.kinds.values().find_map(|kind| kind.handler.max_attempts());
        let most = most.unwrap_or(settings.slots).max(1);
        Group {
            settings,
            most,
            running: BTreeMap::new(),
            attempts: JoinSet::new(),
            ended: Vec::new(),
            claimed: 0,
            refused: BTreeMap::new(),
            pause_until: None,
            is_told: false,
            children: Registry::default(),
        }
    }

    /// Runs until it is drained, and the server knows all ends.
    pub(super) async fn run(mut self) {
        match self.settings.children.registry().await {
            Ok(children) => self.children = children,
            Err(why) => return tracing::error!("no leased job runs here: {why}"),
        }
        let mut transport = self.settings.transport.clone();
        let mut paused = self.settings.paused.clone();
        let GroupSettings { draining, cancelling, .. } = &self.settings;
        let (draining, cancelling) = (draining.clone(), cancelling.clone());
        let (mut requests, mut is_draining) = (Requests::default(), false);
        let mut api = transport.borrow_and_update().clone().map(LeaseApi);
        loop {
            self.send(&mut requests, api.as_ref());
            if self.is_over(&requests) {
                return;
            }
            let Requests { former, claim, report, heartbeat } = &mut requests;
            let may_beat = heartbeat.is_none() && api.is_some();
            let next_wake = self.next_wake(may_beat);
            let may_cancel = self.running.values().any(|lease| !lease.cancel.is_cancelled());
            tokio::select! {
                // The same seed of a simulation has the same history.
                biased;
                Some(end) = self.attempts.join_next() => self.note_end(end),
                answer = answer(former.as_mut()) => {
                    *former = None;
                    match answer {
                        Ok(()) => self.is_told = false,
                        Err(error) => self.note_error(&[], &error),
                    }
                }
                answer = answer(claim.as_mut().map(|(_, request)| request)) => {
                    let (sent, _) = claim.take().expect("it has just been answered");
                    self.claim_answered(sent, answer);
                }
                answer = answer(report.as_mut().map(|(.., request)| request)) => {
                    let (sent, ends, _) = report.take().expect("it has just been answered");
                    self.report_answered(sent, ends, answer);
                }
                answer = answer(heartbeat.as_mut().map(|(.., request)| request)) => {
                    let (sent, ids, _) = heartbeat.take().expect("it has just been answered");
                    self.heartbeat_answered(&sent, &ids, answer);
                }
                // The sender lives as long as the runner.
                Ok(()) = transport.changed() => {
                    api = transport.borrow_and_update().clone().map(LeaseApi);
                    // The former owner may never answer.
                    self.forget(std::mem::take(&mut requests));
                }
                () = sleep_until(next_wake) => {}
                // Also without a claim: this may be the end.
                () = draining.cancelled(), if !is_draining => {
                    is_draining = true;
                    self.give_back(claim);
                }
                Ok(()) = paused.changed() => {
                    if *paused.borrow_and_update() {
                        self.give_back(claim);
                    }
                }
                () = cancelling.cancelled(), if may_cancel => {
                    self.running.values().for_each(|lease| lease.cancel.cancel());
                }
            }
        }
    }

    /// Ends the claim under way, if there is one, and gives back the leases whose attempts have not begun.
    fn give_back(&mut self, claim: &mut Option<(Sent, Answer<Claim>)>) {
        // Dropped, it gives its leases back.
        if let Some((sent, _)) = claim.take() {
            self.claimed -= sent.claimed;
        }
        let waiting = self.running.extract_if(.., |_, lease| lease.waiting.is_some());
        self.ended.extend(waiting.map(|(id, _)| released(id)));
    }

    /// Returns whether nothing more is leased.
    fn is_closing(&self) -> bool {
        self.settings.draining.is_cancelled()
    }

    /// Returns whether nothing runs, nothing more is leased, and the server knows all ends.
    fn is_over(&self, requests: &Requests) -> bool {
        self.is_closing()
            && self.running.is_empty()
            && self.attempts.is_empty()
            && self.ended.is_empty()
            && requests.claim.is_none()
            && requests.report.is_none()
    }

    /// Returns the moment at which something is to be sent again. `may_beat`: whether a heartbeat can be sent then.
    fn next_wake(&self, may_beat: bool) -> Instant {
        let beats = self.running.values().filter(|_| may_beat).map(|lease| lease.next_beat);
        let next = beats.chain(self.refused.values().copied()).min();
        self.pause_until.or(next).unwrap_or_else(|| Instant::now() + CLAIM_WAIT)
    }

    /// Sends what is due.
    fn send(&mut self, requests: &mut Requests, api: Option<&LeaseApi>) {
        let now = Instant::now();
        if self.pause_until.is_some_and(|until| until > now) {
            return;
        }
        self.pause_until = None;
        let Some(api) = api else { return };
        if !self.settings.former.is_over() && requests.former.is_none() && !self.is_closing() {
            let (former, api) = (Arc::clone(&self.settings.former), api.clone());
            requests.former = Some(Box::pin(async move { former.end(api).await }));
        }
        self.refused.retain(|_, until| *until > now);
        let sent = |kinds: Vec<String>, claimed| Sent { at: now, kinds, claimed };
        if requests.report.is_none() && !self.ended.is_empty() {
            let ends = self.take_ends();
            let (kinds, claimed) = self.to_claim();
            self.claimed += claimed;
            let (ends, request) = api.report(ends, kinds.clone(), claimed);
            requests.report = Some((sent(kinds, claimed), ends, request));
        }
        if requests.claim.is_none() {
            let (kinds, claimed) = self.to_claim();
            if claimed > 0 {
                self.claimed += claimed;
                let request = api.claim(kinds.clone(), claimed, CLAIM_WAIT);
                requests.claim = Some((sent(kinds, claimed), request));
            }
        }
        if requests.heartbeat.is_none() {
            let due = self.running.iter().filter(|(_, lease)| lease.next_beat <= now);
            let due: Vec<_> = due.take(MAX_LEASES).map(|(id, _)| id.clone()).collect();
            if !due.is_empty() {
                let request = api.heartbeat(&self.heartbeat_of(&due));
                requests.heartbeat = Some((sent(Vec::new(), 0), due, request));
            }
        }
    }

    fn heartbeat_of(&self, ids: &[String]) -> HeartbeatBatch {
        let progress = |id: &String| Some((id.clone(), self.running.get(id)?.progress.fraction()?));
        let progress: BTreeMap<_, _> = ids.iter().filter_map(progress).collect();
        let progress = (!progress.is_empty()).then_some(progress);
        HeartbeatBatch { leases: ids.to_vec(), progress }
    }

    /// Takes the ends of the next report.
    fn take_ends(&mut self) -> Vec<LeaseEnd> {
        let size = |end: &LeaseEnd| {
            end.result.as_ref().map_or(0, |result| result.get().len())
                + end.log.as_ref().map_or(0, String::len)
        };
        let mut bytes = 0;
        let fits = self.ended.iter().take(MAX_LEASES).take_while(|end| {
            let is_first = bytes == 0;
            bytes += size(end) + 1;
            is_first || bytes <= REPORT_BYTES
        });
        let count = fits.count();
        self.ended.drain(..count).collect()
    }

    /// Returns the kinds to claim, and the number of leases. An attempt whose end is being reported takes no place.
    fn to_claim(&self) -> (Vec<String>, usize) {
        if self.is_closing() || *self.settings.paused.borrow() || !self.settings.former.is_over() {
            return (Vec::new(), 0);
        }
        let kinds = self.settings.kinds.keys().filter(|name| !self.refused.contains_key(*name));
        let kinds: Vec<_> = kinds.cloned().collect();
        let free = self.most.saturating_sub(self.running.len() + self.claimed);
        match kinds.is_empty() {
            true => (kinds, 0),
            false => (kinds, free.min(MAX_LEASES)),
        }
    }

    fn note_end(&mut self, end: Result<LeaseEnd, tokio::task::JoinError>) {
        // The panics of handlers are caught.
        let end = end.expect("an attempt does not panic");
        // A lost lease is not reported.
        if self.running.remove(&end.id).is_some() {
            self.ended.push(end);
        }
    }

    fn claim_answered(&mut self, sent: Sent, answer: Result<Claim, LeaseApiError>) {
        self.claimed -= sent.claimed;
        match answer {
            Ok(Claim { leases }) => {
                self.is_told = false;
                self.start(leases, sent.at);
            }
            Err(error) => self.note_error(&sent.kinds, &error),
        }
    }

    fn report_answered(
        &mut self,
        sent: Sent,
        ends: Vec<LeaseEnd>,
        answer: Result<CompleteResults, LeaseApiError>,
    ) {
        self.claimed -= sent.claimed;
        let results = match answer {
            Ok(results) => results,
            Err(error) => {
                // With a wrong kind, or with an end that the server will never take, nothing was done.
                let is_lost = matches!(error, LeaseApiError::Refused { kind: None, .. });
                match is_lost {
                    true => tracing::error!(%error, "ends of leases were refused, and are lost"),
                    false => self.ended.splice(..0, ends).for_each(drop),
                }
                return self.note_error(&sent.kinds, &error);
            }
        };
        for (end, result) in ends.iter().zip(&results.items) {
            if let Some(problem) = &result.problem {
                tracing::warn!(
                    lease = end.id,
                    "the end of a lease does not count, or an earlier report of it did: {}",
                    problem.detail
                );
            }
        }
        self.start(results.leases.unwrap_or_default(), sent.at);
    }

    fn heartbeat_answered(
        &mut self,
        sent: &Sent,
        ids: &[String],
        answer: Result<HeartbeatResults, LeaseApiError>,
    ) {
        let results = match answer {
            Ok(results) => results.items,
            Err(error) => return self.note_error(&[], &error),
        };
        for (id, result) in ids.iter().zip(results) {
            let Some(lease) = self.running.get_mut(id) else { continue };
            match result.expires_in_ms {
                Some(left) if result.status == 200 => {
                    lease.extend(sent.at, Duration::from_millis(left));
                    if let Some(attempt) = lease.take_attempt() {
                        self.attempts.spawn(attempt.run());
                    }
                    if result.cancel == Some(true) {
                        lease.cancel.cancel();
                    }
                }
                _ => {
                    tracing::info!(
                        lease = id,
                        "a lease has ended before its attempt, which is cancelled"
                    );
                    lease.cancel.cancel();
                    // Its end is not reported.
                    self.running.remove(id);
                }
            }
        }
    }

    /// Starts the attempts of leases that were asked for at `asked`.
    fn start(&mut self, leases: Vec<Lease>, asked: Instant) {
        for lease in leases {
            let (id, kind_name) = (lease.id.clone(), lease.kind.clone());
            let GroupSettings { kinds, draining, .. } = &self.settings;
            let Some(kind) = kinds.get(&lease.kind).filter(|_| !draining.is_cancelled()) else {
                self.ended.push(released(id));
                continue;
            };
            match RunningLease::new(lease, kind.clone(), asked, self.children.clone()) {
                Ok(mut lease) => {
                    // A claim can have waited for longer than the lease lasts, or this process stood still.
                    // Then the attempt begins after the first heartbeat, which is due at once.
                    if let Some(attempt) = lease.take_attempt() {
                        self.attempts.spawn(attempt.run());
                    }
                    self.running.insert(id, lease);
                }
                Err(why) => {
                    tracing::warn!(lease = id, "a lease is given back: {why}");
                    self.refused.insert(kind_name, Instant::now() + REFUSED_FOR);
                    self.ended.push(released(id));
                }
            }
        }
    }

    /// Notes a request without effect: nothing is sent for a moment, and a kind that the server does not lease for longer.
    fn note_error(&mut self, kinds: &[String], error: &LeaseApiError) {
        let now = Instant::now();
        match error {
            LeaseApiError::Refused { why, kind: Some(place) } if *place < kinds.len() => {
                tracing::warn!(
                    kind = kinds[*place],
                    "the owner of the store leases no jobs of a kind: {why}"
                );
                self.refused.insert(kinds[*place].clone(), now + REFUSED_FOR);
            }
            error => {
                if !std::mem::replace(&mut self.is_told, true) {
                    tracing::warn!(%error, "the owner of the store gives no leases now; this is tried again");
                }
                self.pause_until = Some(now + PAUSE);
            }
        }
    }

    /// Forgets the requests under way. The ends in a report are reported again.
    fn forget(&mut self, requests: Requests) {
        if let Some((sent, _)) = requests.claim {
            self.claimed -= sent.claimed;
        }
        if let Some((sent, ends, _)) = requests.report {
            self.claimed -= sent.claimed;
            self.ended.splice(..0, ends);
        }
        self.refused.clear();
        self.pause_until = None;
    }
}
