//! Model of the database: the rows that the ownership needs, their locks, and the statements of the product on them.
//!
//! A statement is a future with pauses between its steps, in which other statements run. It reads a row that it has locked in its newest
//! version, and changes rows at its end, all at once. At an end of the server or of its session it is dropped: nothing of it is
//! written.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use keylane_testkit::Random;
use tokio::sync::{Mutex, OwnedMutexGuard, RwLock, oneshot};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::history::History;
use crate::store::postgres::candidate::Seen;
use crate::store::postgres::nodes::Nonce;

/// `lock_timeout` of a takeover.
const PATIENCE: Duration = Duration::from_millis(200);

/// Number of earlier states that a promoted standby can have.
const MAX_PAST: usize = 10;

/// Failure of a statement, as its node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection has ended, or there is none. What was sent may be executed.
    Gone,
    /// Another connection held a lock for too long. Nothing was written.
    Locked,
    /// The node does not own the store. Nothing was written.
    NotOwner,
}

/// Committed rows.
#[derive(Clone, Debug, Default)]
struct Rows {
    epoch: i64,
    node: Option<Nonce>,
    writer: Option<u64>,
    /// Timeline of the last opening, or that on which the tables were created.
    history: u64,
    heartbeats: BTreeMap<Nonce, i64>,
    /// Number of the last transaction.
    commits: u64,
    /// Writes, in order.
    log: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Server {
    /// What the nodes see as one server, also after a promotion.
    state: RefCell<State>,
    history: Rc<History>,
}

#[derive(Debug)]
struct State {
    random: Random,
    rows: Rows,
    /// The last states before `rows`.
    past: Vec<Rows>,
    timeline: u64,
    is_up: bool,
    has_faults: bool,
    /// Of a thousand messages, those that are late.
    late: usize,
    /// Of a thousand steps, those before which the statement stands still.
    still: usize,
    /// Locks of the row of `term` and of those of `heartbeat`.
    term: Arc<RwLock<()>>,
    beats: BTreeMap<Nonce, Arc<Mutex<()>>>,
    executions: Vec<Execution>,
    sessions: Vec<Session>,
    last_session: u64,
}

/// Statement in execution.
#[derive(Debug)]
struct Execution {
    session: u64,
    task: AbortHandle,
    has_locks: Rc<Cell<bool>>,
}

/// Connection of a node.
#[derive(Clone, Debug)]
pub(super) struct Session {
    number: u64,
    node: Nonce,
    pub(super) timeline: u64,
    /// Cancelled when the connection has ended.
    ended: CancellationToken,
}

impl Session {
    pub(super) fn is_closed(&self) -> bool {
        self.ended.is_cancelled()
    }
}

impl Server {
    pub(super) fn new(mut random: Random, history: Rc<History>) -> Rc<Self> {
        // Some faults meet only where they are frequent, and work goes on only where they are not.
        let late = *random.pick(&[5, 10, 50, 200]).unwrap();
        let still = *random.pick(&[2, 5, 50]).unwrap();
        let state = State {
            random,
            rows: Rows { history: 1, ..Rows::default() },
            past: Vec::new(),
            timeline: 1,
            is_up: true,
            has_faults: true,
            late,
            still,
            term: Arc::default(),
            beats: BTreeMap::new(),
            executions: Vec::new(),
            sessions: Vec::new(),
            last_session: 0,
        };
        Rc::new(Server { state: RefCell::new(state), history })
    }

    /// Returns the writes, in order.
    pub(super) fn log(&self) -> Vec<u64> {
        self.state.borrow().rows.log.clone()
    }

    pub(super) fn end_faults(&self) {
        self.state.borrow_mut().has_faults = false;
    }

    /// Ends the server and starts it again, or promotes a standby without the last `lost` transactions.
    pub(super) async fn crash(&self, away: Duration, lost: usize) {
        self.history.add("the database ends");
        {
            let mut state = self.state.borrow_mut();
            state.is_up = false;
            state.executions.drain(..).for_each(|execution| execution.task.abort());
            state.sessions.drain(..).for_each(|session| session.ended.cancel());
            (state.term, state.beats) = Default::default();
        }
        sleep(away).await;
        let mut state = self.state.borrow_mut();
        state.is_up = true;
        let kept = state.past.len().saturating_sub(lost);
        if lost > 0 {
            state.timeline += 1;
            self.history
                .add(&format!("a standby is promoted without {} commits", state.past.len() - kept));
        }
        let standby = state.past.drain(kept..).next();
        if let Some(rows) = standby {
            let missing = state.rows.log.iter().filter(|write| !rows.log.contains(write));
            missing.for_each(|write| self.history.lose(*write));
            state.rows = rows;
        }
    }

    /// Ends the connections of a node, which the server does not know at once.
    pub(super) fn cut(&self, node: Nonce) {
        self.history.add(&format!("node {} loses its connections", node[0]));
        let mut state = self.state.borrow_mut();
        let ended = state.sessions.extract_if(.., |session| session.node == node);
        ended.for_each(|session| session.ended.cancel());
    }

    /// Connects a node.
    pub(super) async fn connect(&self, node: Nonce) -> Result<Session, Failure> {
        sleep(self.delay()).await;
        let mut state = self.state.borrow_mut();
        if !state.is_up {
            return Err(Failure::Gone);
        }
        state.last_session += 1;
        let (number, timeline) = (state.last_session, state.timeline);
        let session = Session { number, node, timeline, ended: CancellationToken::new() };
        state.sessions.push(session.clone());
        Ok(session)
    }

    /// Executes a statement for a session, and waits for its answer.
    async fn execute<T: 'static, F: Future<Output = Result<T, Failure>>>(
        self: &Rc<Self>,
        session: &Session,
        statement: impl FnOnce(Rc<Server>, Rc<Cell<bool>>) -> F + 'static,
    ) -> Result<T, Failure> {
        if session.is_closed() {
            return Err(Failure::Gone);
        }
        let (answer, answered) = oneshot::channel();
        let (server, has_locks) = (Rc::clone(self), Rc::new(Cell::new(false)));
        let (there, back) = (self.delay(), self.delay());
        let holds = Rc::clone(&has_locks);
        let task = spawn_local(async move {
            sleep(there).await;
            let done = statement(server, Rc::clone(&holds)).await;
            holds.set(false);
            sleep(back).await;
            let _ = answer.send(done);
        });
        let task = task.abort_handle();
        self.add_execution(Execution { session: session.number, task, has_locks });
        tokio::select! {
            biased;
            () = session.ended.cancelled() => Err(Failure::Gone),
            answer = answered => answer.unwrap_or(Err(Failure::Gone)),
        }
    }

    fn add_execution(&self, execution: Execution) {
        let executions = &mut self.state.borrow_mut().executions;
        executions.retain(|execution| !execution.task.is_finished());
        executions.push(execution);
    }

    /// Reads the row of the owner with its heartbeat.
    pub(super) async fn look(self: &Rc<Self>, session: &Session) -> Result<Seen, Failure> {
        let timeline = session.timeline;
        let look = async move |server: Rc<Server>, _| {
            let rows = &server.state.borrow().rows;
            let heartbeat = rows.node.and_then(|node| rows.heartbeats.get(&node).copied());
            let is_moved = rows.history != timeline;
            let (epoch, node, heartbeat) = (rows.epoch, rows.node, heartbeat.unwrap_or(0));
            Ok(Seen { epoch, node, heartbeat, is_moved })
        };
        self.execute(session, look).await
    }

    /// The function `take_over`. Returns the number of the takeover, if it has succeeded.
    pub(super) async fn take_over(
        self: &Rc<Self>,
        session: &Session,
        seen: &Seen,
        node: Nonce,
        writer: u64,
    ) -> Result<Option<u64>, Failure> {
        let seen = seen.clone();
        let take = async move |server: Rc<Server>, has_locks: Rc<Cell<bool>>| {
            let beats = server.lock_of_existing_heartbeat(&seen);
            let beats = within_patience(lock_if_any(beats)).await?;
            has_locks.set(true);
            let found =
                server.read(|rows| seen.node.and_then(|node| rows.heartbeats.get(&node).copied()));
            if found.unwrap_or(0) != seen.heartbeat {
                return Ok(None);
            }
            server.pause().await;
            let lock = server.term_lock();
            let term = within_patience(lock.write_owned()).await?;
            if server.read(|rows| rows.epoch) != seen.epoch {
                return Ok(None);
            }
            server.pause().await;
            server.commit(|rows| {
                rows.epoch += 1;
                (rows.node, rows.writer) = (Some(node), Some(writer));
                rows.heartbeats.retain(|other, _| *other == node);
                *rows.heartbeats.entry(node).or_insert(0) += 1;
            });
            let takeover = server.history.takeover();
            server.history.add(&format!(
                "node {} takes the store, epoch {}",
                node[0],
                seen.epoch + 1
            ));
            drop((beats, term));
            Ok(Some(takeover))
        };
        self.execute(session, take).await
    }

    /// The function `beat`.
    pub(super) async fn beat(
        self: &Rc<Self>,
        session: &Session,
        node: Nonce,
        epoch: i64,
    ) -> Result<(), Failure> {
        let beat = async move |server: Rc<Server>, has_locks: Rc<Cell<bool>>| {
            // It creates the row if there is none.
            let lock = server.heartbeat_lock(node).lock_owned().await;
            has_locks.set(true);
            server.pause().await;
            if server.read(|rows| (rows.node, rows.epoch)) != (Some(node), epoch) {
                return Err(Failure::NotOwner);
            }
            server.pause().await;
            server.commit(|rows| *rows.heartbeats.entry(node).or_insert(0) += 1);
            drop(lock);
            Ok(())
        };
        self.execute(session, beat).await
    }

    /// Records the timeline of an opening. Returns the number of the last transaction.
    pub(super) async fn record_opening(
        self: &Rc<Self>,
        session: &Session,
        writer: u64,
    ) -> Result<u64, Failure> {
        let timeline = session.timeline;
        let record = async move |server: Rc<Server>, has_locks: Rc<Cell<bool>>| {
            let lock = server.term_lock().write_owned().await;
            has_locks.set(true);
            if server.read(|rows| rows.writer) != Some(writer) {
                return Err(Failure::NotOwner);
            }
            server.pause().await;
            server.commit(|rows| rows.history = timeline);
            drop(lock);
            Ok(server.read(|rows| rows.commits))
        };
        self.execute(session, record).await
    }

    /// A transaction of the writer: `check_writer`, a write, and the number of the transaction.
    pub(super) async fn transaction(
        self: &Rc<Self>,
        session: &Session,
        writer: u64,
        commits: u64,
        write: u64,
    ) -> Result<(), Failure> {
        let transaction = async move |server: Rc<Server>, has_locks: Rc<Cell<bool>>| {
            let lock = server.term_lock().read_owned().await;
            has_locks.set(true);
            if server.read(|rows| (rows.writer, rows.commits)) != (Some(writer), commits) {
                return Err(Failure::NotOwner);
            }
            server.pause().await;
            server.commit(|rows| {
                rows.commits += 1;
                rows.log.push(write);
            });
            drop(lock);
            Ok(())
        };
        self.execute(session, transaction).await
    }

    /// The function `rename_writer`. Returns the number of the last transaction.
    pub(super) async fn rename_writer(
        self: &Rc<Self>,
        session: &Session,
        (node, epoch): (Nonce, i64),
        writer: u64,
    ) -> Result<u64, Failure> {
        let rename = async move |server: Rc<Server>, has_locks: Rc<Cell<bool>>| {
            let lock = server.term_lock().write_owned().await;
            has_locks.set(true);
            if server.read(|rows| (rows.node, rows.epoch)) != (Some(node), epoch) {
                return Err(Failure::NotOwner);
            }
            server.pause().await;
            let commits = server.read(|rows| rows.commits);
            server.pause().await;
            server.commit(|rows| rows.writer = Some(writer));
            drop(lock);
            Ok(commits)
        };
        self.execute(session, rename).await
    }

    /// Gives the store up.
    pub(super) async fn close(
        self: &Rc<Self>,
        session: &Session,
        node: Nonce,
        epoch: i64,
    ) -> Result<(), Failure> {
        let close = async move |server: Rc<Server>, has_locks: Rc<Cell<bool>>| {
            let lock = server.term_lock().write_owned().await;
            has_locks.set(true);
            if server.read(|rows| (rows.node, rows.epoch)) == (Some(node), epoch) {
                server.commit(|rows| (rows.node, rows.writer) = (None, None));
                server.history.add(&format!("node {} closes the store", node[0]));
            }
            drop(lock);
            Ok(())
        };
        self.execute(session, close).await
    }

    /// Ends the sessions whose transactions hold rows.
    pub(super) fn end_transactions(&self) {
        let mut state = self.state.borrow_mut();
        let ended: Vec<u64> = state
            .executions
            .extract_if(.., |execution| execution.has_locks.get())
            .map(|execution| {
                execution.task.abort();
                execution.session
            })
            .collect();
        let sessions = state.sessions.extract_if(.., |session| ended.contains(&session.number));
        sessions.for_each(|session| session.ended.cancel());
    }

    /// Ends what is executed for a session, but not what is still on its way.
    pub(super) fn end_session(&self, earlier: &Session) {
        for execution in &self.state.borrow().executions {
            if execution.session == earlier.number && execution.has_locks.get() {
                execution.task.abort();
            }
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Rows) -> T) -> T {
        read(&self.state.borrow().rows)
    }

    fn commit(&self, change: impl FnOnce(&mut Rows)) {
        let mut state = self.state.borrow_mut();
        let before = state.rows.clone();
        state.past.push(before);
        let too_many = state.past.len().saturating_sub(MAX_PAST);
        state.past.drain(..too_many);
        change(&mut state.rows);
    }

    fn term_lock(&self) -> Arc<RwLock<()>> {
        Arc::clone(&self.state.borrow().term)
    }

    fn heartbeat_lock(&self, node: Nonce) -> Arc<Mutex<()>> {
        Arc::clone(self.state.borrow_mut().beats.entry(node).or_default())
    }

    /// Returns the lock of the row of the owner's heartbeat. A row that is not there cannot be locked.
    fn lock_of_existing_heartbeat(&self, seen: &Seen) -> Option<Arc<Mutex<()>>> {
        let node = seen.node.filter(|node| self.read(|rows| rows.heartbeats.contains_key(node)))?;
        Some(self.heartbeat_lock(node))
    }

    /// Returns the time of a message on its way.
    fn delay(&self) -> Duration {
        let state = &mut *self.state.borrow_mut();
        let (late, until) = (state.late, if state.random.chance(20) { 8_000 } else { 200 });
        state.time(late, until, 4)
    }

    /// Lets other statements run, seldom for long: the machine of the server, or that of a client that has sent half of a transaction,
    /// may stand still.
    async fn pause(&self) {
        let time = {
            let state = &mut *self.state.borrow_mut();
            let (still, until) = (state.still, if state.random.chance(20) { 10_000 } else { 300 });
            state.time(still, until, 3)
        };
        sleep(time).await;
    }
}

impl State {
    /// Returns a time below `until` milliseconds `seldom` times in a thousand, and below `else_until` otherwise.
    fn time(&mut self, seldom: usize, until: u64, else_until: u64) -> Duration {
        let is_long = self.has_faults && self.random.below(1_000) < seldom;
        let until = if is_long { until } else { else_until };
        Duration::from_millis(self.random.within(0..until))
    }
}

async fn lock_if_any(lock: Option<Arc<Mutex<()>>>) -> Option<OwnedMutexGuard<()>> {
    match lock {
        Some(lock) => Some(lock.lock_owned().await),
        None => None,
    }
}

async fn within_patience<T>(lock: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(PATIENCE, lock).await.map_err(|_| Failure::Locked)
}
