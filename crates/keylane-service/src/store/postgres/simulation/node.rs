//! A node: its machine, and the process on it, which waits for the store, owns it, and starts again when it has ended.
//!
//! The steps are those of `open`, `ownership`, `heartbeat` and `database`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use keylane_testkit::Random;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;

use super::history::History;
use super::server::{Failure, Server, Session};
use crate::store::postgres::candidate::Candidate;
use crate::store::postgres::database::was_committed;
use crate::store::postgres::lease::Lease;
use crate::store::postgres::nodes::Nonce;

/// Interval between two looks at the owner.
const LOOK: Duration = Duration::from_millis(250);

/// Interval between two heartbeats.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval between two attempts to reach the database.
const RETRY: Duration = Duration::from_millis(250);

/// Machine of a node, which faults act on.
#[derive(Debug)]
pub(super) struct Host {
    number: u8,
    random: RefCell<Random>,
    /// Speed of its clock, in thousandths.
    clock: u32,
    /// Whether its process stands still.
    is_stopped: Cell<bool>,
    /// Notified when the process goes on.
    goes_on: Notify,
    is_off_network: Cell<bool>,
    is_drained: Cell<bool>,
    /// Whether its process is to close the store.
    closes: Cell<bool>,
    /// Tasks of its process.
    tasks: RefCell<Vec<AbortHandle>>,
    /// Tasks that end a fault.
    ends_of_faults: RefCell<Vec<AbortHandle>>,
    server: Rc<Server>,
    history: Rc<History>,
}

impl Host {
    pub(super) fn new(
        number: u8,
        mut random: Random,
        server: &Rc<Server>,
        history: &Rc<History>,
    ) -> Rc<Self> {
        let clock = random.within(950..1_051) as u32;
        Rc::new(Host {
            number,
            random: RefCell::new(random),
            clock,
            is_stopped: Cell::new(false),
            goes_on: Notify::new(),
            is_off_network: Cell::new(false),
            is_drained: Cell::new(false),
            closes: Cell::new(false),
            tasks: RefCell::default(),
            ends_of_faults: RefCell::default(),
            server: Rc::clone(server),
            history: Rc::clone(history),
        })
    }

    pub(super) fn name(&self) -> Nonce {
        [self.number; 16]
    }

    pub(super) fn start(self: &Rc<Self>) {
        let process = spawn_local(Rc::clone(self).run());
        self.tasks.borrow_mut().push(process.abort_handle());
    }

    pub(super) fn stop_for(self: &Rc<Self>, time: Duration) {
        self.tell("is stopped");
        self.is_stopped.set(true);
        self.after(time, Host::go_on);
    }

    pub(super) fn take_off_network_for(self: &Rc<Self>, time: Duration) {
        self.tell("is off the network");
        self.server.cut(self.name());
        self.is_off_network.set(true);
        self.after(time, |host| host.is_off_network.set(false));
    }

    fn after(self: &Rc<Self>, time: Duration, end: impl FnOnce(&Host) + 'static) {
        let host = Rc::clone(self);
        let ends = spawn_local(async move {
            sleep(time).await;
            end(&host);
        });
        self.ends_of_faults.borrow_mut().push(ends.abort_handle());
    }

    fn go_on(&self) {
        self.is_stopped.set(false);
        self.goes_on.notify_waiters();
    }

    /// Kills the process, and starts it again later.
    pub(super) fn kill(self: &Rc<Self>) {
        self.tell("is killed");
        self.tasks.borrow_mut().drain(..).for_each(|task| task.abort());
        self.server.cut(self.name());
        let (host, wait) = (Rc::clone(self), self.random.borrow_mut().within(0..8_000));
        spawn_local(async move {
            sleep(Duration::from_millis(wait)).await;
            // Another kill may have started it.
            if host.tasks.borrow().is_empty() {
                host.start();
            }
        });
    }

    pub(super) fn close(&self) {
        self.closes.set(true);
    }

    pub(super) fn set_drained(&self, drained: bool) {
        self.tell(if drained { "is drained" } else { "is not drained" });
        self.is_drained.set(drained);
        self.closes.set(drained);
    }

    pub(super) fn end_faults(&self) {
        self.ends_of_faults.borrow_mut().drain(..).for_each(|end| end.abort());
        self.go_on();
        self.is_off_network.set(false);
        self.is_drained.set(false);
    }

    fn tell(&self, event: &str) {
        self.history.add(&format!("node {} {event}", self.number));
    }

    /// Returns the time of its clock.
    fn now(&self) -> Duration {
        self.history.time() * self.clock / 1_000
    }

    /// Waits while the process is stopped.
    async fn awake(&self) {
        while self.is_stopped.get() {
            self.goes_on.notified().await;
        }
    }

    async fn sleep(&self, time: Duration) {
        sleep(time).await;
        self.awake().await;
    }

    async fn sleep_within(&self, from_ms: u64, until_ms: u64) {
        let time = self.random.borrow_mut().within(from_ms..until_ms);
        self.sleep(Duration::from_millis(time)).await;
    }

    /// Waits for an answer of the server.
    async fn ask<T>(&self, asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        self.awake().await;
        let answer = asked.await;
        self.awake().await;
        answer
    }

    async fn connect(&self) -> Result<Session, Failure> {
        if self.is_off_network.get() {
            self.sleep(RETRY).await;
            return Err(Failure::Gone);
        }
        self.ask(self.server.connect(self.name())).await
    }

    fn random_name(&self) -> u64 {
        self.random.borrow_mut().number()
    }

    async fn run(self: Rc<Self>) {
        loop {
            if let Ok(owner) = self.open().await {
                owner.work().await;
            }
            self.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until it owns the store.
    async fn open(self: &Rc<Self>) -> Result<Owner, Failure> {
        let session = self.connect().await?;
        let (name, writer) = (self.name(), self.random_name());
        let first = self.ask(self.server.look(&session)).await?;
        let mut candidate = Candidate::new(name, first, self.now());
        let takeover = loop {
            if candidate.may_take(self.now(), self.is_drained.get()) {
                let take = self.server.take_over(&session, candidate.seen(), name, writer);
                match self.ask(take).await {
                    Ok(Some(takeover)) => break takeover,
                    Ok(None) => {}
                    Err(_) => self.server.end_transactions(),
                }
            }
            self.sleep(LOOK).await;
            let seen = self.ask(self.server.look(&session)).await?;
            candidate.record(seen, self.now());
        };
        self.is_drained.set(false);
        self.closes.set(false);
        let epoch = candidate.seen().epoch + 1;
        let timeline = session.timeline;
        let lease = Rc::new(Lease::default());
        let (host, of_lease) = (Rc::clone(self), Rc::downgrade(&lease));
        self.history
            .own(self.number, takeover, move || Some(of_lease.upgrade()?.holds_at(host.now())));
        let host = Rc::clone(self);
        let mut beats =
            Beats { host, epoch, takeover, timeline, lease: Rc::clone(&lease), session: None };
        beats.send().await?;
        let heartbeats = spawn_local(beats.run()).abort_handle();
        self.tasks.borrow_mut().push(heartbeats.clone());
        let opened = self.ask(self.server.record_opening(&session, writer)).await;
        let commits = opened.inspect_err(|_| heartbeats.abort())?;
        let writer = RefCell::new(Writer { session, writer, commits });
        let host = Rc::clone(self);
        Ok(Owner { host, epoch, timeline, lease, heartbeats, writer })
    }
}

/// Heartbeats of an owner.
struct Beats {
    host: Rc<Host>,
    epoch: i64,
    /// Number of the takeover in the history.
    takeover: u64,
    timeline: u64,
    lease: Rc<Lease>,
    session: Option<Session>,
}

impl Beats {
    async fn run(mut self) {
        loop {
            self.host.sleep(INTERVAL).await;
            if self.send().await.is_err() {
                self.session = None;
            }
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let host = &self.host;
        let session = match &self.session {
            Some(session) if !session.is_closed() => session,
            _ => {
                let session = host.connect().await?;
                if session.timeline != self.timeline {
                    self.lease.lose("promoted");
                    return Err(Failure::NotOwner);
                }
                self.session.insert(session)
            }
        };
        let sent = host.now();
        let beat = host.ask(host.server.beat(session, host.name(), self.epoch)).await;
        match beat {
            Ok(()) => {
                self.lease.extend(sent);
                host.history.extend(self.takeover);
            }
            Err(Failure::NotOwner) => self.lease.lose("taken"),
            Err(_) => {}
        }
        beat
    }
}

/// Process that owns the store.
struct Owner {
    host: Rc<Host>,
    epoch: i64,
    timeline: u64,
    lease: Rc<Lease>,
    heartbeats: AbortHandle,
    writer: RefCell<Writer>,
}

/// Connection of the writer.
struct Writer {
    session: Session,
    /// Name of the connection.
    writer: u64,
    /// Number of the last transaction.
    commits: u64,
}

impl Owner {
    /// Starts work and writes until it is to close the store, or owns it no longer.
    async fn work(self) {
        let closes = tokio::select! {
            biased;
            closes = self.write() => closes,
            () = self.start_work() => unreachable!("it does not end"),
        };
        self.heartbeats.abort();
        self.lease.end();
        let host = &self.host;
        if closes {
            let session = self.writer.borrow().session.clone();
            let _ = host.ask(host.server.close(&session, host.name(), self.epoch)).await;
        } else {
            host.tell("has lost the store");
        }
    }

    async fn start_work(&self) {
        loop {
            self.host.sleep_within(100, 1_500).await;
            if self.lease.holds_at(self.host.now()) {
                self.host.history.start();
            }
        }
    }

    /// Writes until it is to close the store, which it returns, or owns it no longer.
    async fn write(&self) -> bool {
        let history = &self.host.history;
        loop {
            self.host.sleep_within(10, 400).await;
            if self.host.closes.take() {
                return true;
            }
            if self.lease.lost().is_some() {
                return false;
            }
            let write = history.write();
            match self.transaction(write).await {
                Ok(true) => history.acknowledge(write),
                Ok(false) => history.refuse(write),
                Err(()) => return false,
            }
        }
    }

    /// Makes a transaction. Returns whether it was committed; an error if this node cannot know that, or does not own the store.
    async fn transaction(&self, write: u64) -> Result<bool, ()> {
        let commits = self.writer.borrow().commits;
        if self.writer.borrow().session.is_closed() {
            match self.reconnect().await {
                Ok(found) if found == commits => {}
                Err(Failure::Gone) => return Ok(false),
                _ => return Err(()),
            }
        }
        let (session, writer) = {
            let writer = self.writer.borrow();
            (writer.session.clone(), writer.writer)
        };
        let host = &self.host;
        let sent = host.server.transaction(&session, writer, commits, write);
        let is_committed = match host.ask(sent).await {
            Ok(()) => true,
            Err(Failure::Gone) => self.settle(commits).await?,
            Err(_) => return Err(()),
        };
        if is_committed {
            self.writer.borrow_mut().commits += 1;
        }
        Ok(is_committed)
    }

    /// Finds out whether the transaction was committed whose answer is missing.
    async fn settle(&self, commits: u64) -> Result<bool, ()> {
        self.host.tell("does not know whether a write was committed");
        loop {
            match self.reconnect().await {
                Ok(found) => return was_committed(commits, found).map_err(drop),
                Err(Failure::Gone) => self.host.sleep(RETRY).await,
                Err(_) => return Err(()),
            }
        }
    }

    /// Connects again, and returns the number of the last transaction.
    async fn reconnect(&self) -> Result<u64, Failure> {
        let host = &self.host;
        let session = host.connect().await?;
        if session.timeline != self.timeline {
            return Err(Failure::NotOwner);
        }
        host.server.end_session(&self.writer.borrow().session);
        let name = host.random_name();
        let owner = (host.name(), self.epoch);
        let found = host.ask(host.server.rename_writer(&session, owner, name)).await?;
        let mut writer = self.writer.borrow_mut();
        (writer.session, writer.writer) = (session, name);
        Ok(found)
    }
}
