//! Simulation of the ownership of a store: several nodes and a database, from one seed, on one thread, in simulated time.
//!
//! | part | file |
//! |---|---|
//! | the database: rows, locks, statements, connections | `server` |
//! | a node: it waits for the store, owns it, writes, starts work | `node` |
//! | what a run has shown, and the promises that it breaks | `history` |
//!
//! The decisions are the product's: when a node may take the store (`Candidate`), for how long it may start work (`Lease`), and whether a
//! transaction was committed whose answer is missing (`was_committed`). The statements are a model of those in `layout`: each takes its
//! locks and sees rows as PostgreSQL does, with other statements between its steps. Nodes stop, are killed, drained and closed, their
//! clocks differ, messages are late or lost, transactions stand still; the database ends at any moment, or a standby without its last transactions is
//! promoted.
//!
//! `KEYLANE_SEEDS=1000` runs the seeds 0 to 999, `KEYLANE_SEEDS=17..18` the seed 17. Not simulated: a former server that still runs
//! beside its promoted standby.

mod history;
mod node;
mod server;

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use keylane_testkit::Random;
use keylane_testkit::simulation::{assert_same, first_failure, seeds};
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::sleep;

use self::history::History;
use self::node::Host;
use self::server::Server;

/// Seeds of a test run without `KEYLANE_SEEDS`.
const SEEDS: Range<u64> = 0..50;

/// Number of nodes.
const NODES: u8 = 3;

/// Time with faults.
const WITH_FAULTS: Duration = Duration::from_secs(80);

/// Time without faults afterwards, in which the store gets an owner that works.
const WITHOUT_FAULTS: Duration = Duration::from_secs(40);

/// Returns what happened in the run of a seed.
fn run(seed: u64) -> Rc<History> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, simulate(seed))
}

async fn simulate(seed: u64) -> Rc<History> {
    let history = Rc::new(History::new());
    let server = Server::new(Random::of(seed, &[1]), Rc::clone(&history));
    let hosts: Vec<Rc<Host>> = (1..=NODES)
        .map(|number| Host::new(number, Random::of(seed, &[2, number.into()]), &server, &history))
        .collect();
    let mut random = Random::of(seed, &[3]);
    let interval = *random.pick(&[1_000, 3_000, 6_000]).unwrap();
    let mut faults = Faults { random, interval, server: &server, hosts: &hosts };
    for host in &hosts {
        host.start();
    }
    while history.time() < WITH_FAULTS {
        sleep(Duration::from_millis(faults.random.within(0..faults.interval))).await;
        faults.make_one().await;
    }
    server.end_faults();
    for host in &hosts {
        host.end_faults();
    }
    sleep(WITHOUT_FAULTS).await;
    history.judge_end(&server.log());
    history
}

/// Source of faults.
struct Faults<'a> {
    random: Random,
    /// Longest time between two faults, in milliseconds.
    interval: u64,
    server: &'a Rc<Server>,
    hosts: &'a [Rc<Host>],
}

impl Faults<'_> {
    async fn make_one(&mut self) {
        let host = self.random.pick(self.hosts).unwrap();
        let random = &mut self.random;
        match random.below(16) {
            0..=3 => host.stop_for(Duration::from_millis(random.within(100..15_000))),
            4 | 5 => host.kill(),
            6 => host.close(),
            7 => host.set_drained(random.chance(50)),
            8..=10 => self.server.cut(host.name()),
            11 | 12 => host.take_off_network_for(Duration::from_millis(random.within(500..12_000))),
            13 | 14 => self.server.crash(Duration::from_millis(random.within(0..8_000)), 0).await,
            _ => {
                let lost = random.below(6);
                self.server.crash(Duration::from_millis(random.within(0..3_000)), lost).await;
            }
        }
    }
}

#[test]
fn promises_hold_in_every_simulated_history() {
    let broken = first_failure(seeds(SEEDS), |seed| {
        let history = run(seed);
        let broken = history.broken();
        (!broken.is_empty()).then(|| format!("{}\n\n{broken}", history.text()))
    });
    if let Some((seed, broken)) = broken {
        panic!(
            "seed {seed} breaks promises:\n{broken}\n\nrun it alone: KEYLANE_SEEDS={seed}..{} cargo test -p keylane-service \
             --features postgres --lib postgres::simulation::promises",
            seed + 1,
        );
    }
}

#[test]
fn two_runs_of_a_seed_have_the_same_history() {
    for seed in seeds(SEEDS).take(2) {
        assert_same(seed, &run(seed).text(), &run(seed).text());
    }
}

/// Otherwise the promises would hold of nothing.
#[test]
fn runs_have_takeovers_and_faults_of_all_kinds() {
    let texts: Vec<_> = (0..20).map(|seed| run(seed).text()).collect();
    for event in [
        "takes the store",
        "is stopped",
        "is killed",
        "closes the store",
        "is drained",
        "loses its connections",
        "is off the network",
        "the database ends",
        "is promoted without",
        "has lost the store",
        "does not know",
    ] {
        assert!(texts.iter().any(|text| text.contains(event)), "{event}");
    }
}
