//! A simulation: the order of all steps, and the faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::broker::{Broker, SESSION_TIMEOUT};
use super::cuts::Cuts;
use super::history::{Entry, Event};
use super::process::{Process, Step, reason};
use super::settings::{Behaviour, Settings};
use super::stage::Stage;
use super::world::World;
use keylane_testkit::Random;

/// Maximum time from the end of all faults to the end of all work, in microseconds.
const MAX_HEALED: u64 = 300_000_000;

struct Simulation {
    stage: Stage,
    seed: u64,
    cuts: Cuts,
    processes: Vec<Process>,
    /// Number of processes so far.
    count: usize,
    /// Number of actions so far: of the producer, the operator and the faults.
    actions: u64,
    /// Time of the next one.
    next_action: u64,
    /// Members without a connection, and the time at which it comes back.
    cut: Vec<(usize, u64)>,
    is_healed: bool,
}

/// What happens next.
enum Next {
    Broker,
    Action,
    Reconnect,
    Process(usize, Step),
}

/// Maximum time with faults, in milliseconds.
pub(super) const MAX_FAULTY: u64 = 60_000;

/// Result of a simulation.
pub(super) struct Outcome {
    pub(super) settings: Settings,
    pub(super) history: Vec<Entry>,
    /// Number of actions.
    pub(super) actions: u64,
}

/// Runs the simulation of a seed without some parts.
pub(super) fn simulate(seed: u64, cuts: Cuts) -> Outcome {
    let mut random = Random::of(seed, &[0]);
    let settings = Settings::draw(&mut random);
    let world = World::new();
    let broker = Broker::new(world.clone(), settings.partitions, Random::of(seed, &[1]));
    let stage = Stage {
        world,
        broker: Arc::new(Mutex::new(broker)),
        settings: settings.clone(),
        behaviour: Arc::new(Mutex::new(Behaviour::new(seed))),
    };
    let max_faulty = cuts.max_faulty.unwrap_or(MAX_FAULTY) * 1000;
    let faulty = random.within(10_000_000..MAX_FAULTY * 1000).min(max_faulty);
    let members = random.within(1..3);
    let mut simulation = Simulation {
        stage,
        seed,
        cuts,
        processes: Vec::new(),
        count: 0,
        actions: 0,
        next_action: 0,
        cut: Vec::new(),
        is_healed: false,
    };
    simulation.start();
    simulation.run(|simulation| simulation.stage.world.now() >= faulty);
    simulation.heal();
    simulation.run(|simulation| simulation.processes.is_empty());
    // Keys that had stopped go on in new processes. One that needs all partitions is alone.
    if settings.has_claims {
        let until = simulation.stage.world.now() + 2 * SESSION_TIMEOUT;
        simulation.run(|simulation| simulation.stage.world.now() >= until);
    }
    (0..if settings.has_claims { 1 } else { members }).for_each(|_| simulation.start());
    let begin = simulation.stage.world.now();
    simulation.run(|simulation| {
        let is_over = simulation.stage.world.now() - begin > MAX_HEALED;
        is_over || simulation.stage.broker.lock().unwrap().is_all_stored()
    });
    simulation.processes.iter().for_each(|process| process.stop(Duration::from_secs(2)));
    simulation.run(|simulation| simulation.processes.is_empty());
    simulation.stage.world.record(Event::Finished);
    let history = simulation.stage.world.take_history();
    Outcome { settings, history, actions: simulation.actions }
}

impl Simulation {
    fn start(&mut self) {
        let random = Random::of(self.seed, &[6, self.count as u64]);
        self.processes.push(Process::start(&self.stage, self.count, random));
        self.count += 1;
    }

    /// Lets time pass until `is_over`.
    fn run(&mut self, is_over: impl Fn(&Simulation) -> bool) {
        while !is_over(self) {
            self.processes.iter_mut().for_each(Process::schedule);
            let (at, next) = self.next();
            let world = &self.stage.world;
            world.set_now(at.max(world.now()));
            match next {
                Next::Broker => self.stage.broker.lock().unwrap().step(),
                Next::Action => self.act(),
                Next::Reconnect => self.reconnect(),
                Next::Process(index, step) => self.step(index, step),
            }
        }
    }

    /// Returns what comes next, and when.
    fn next(&self) -> (u64, Next) {
        let broker = self.stage.broker.lock().unwrap().next_at().map(|at| (at, Next::Broker));
        let back = self.cut.iter().map(|(_, at)| *at).min().map(|at| (at, Next::Reconnect));
        let steps = self.processes.iter().enumerate().filter_map(|(index, process)| {
            process.next().map(|(at, step)| (at, Next::Process(index, step)))
        });
        let action = [(self.next_action, Next::Action)];
        let all = action.into_iter().chain(broker).chain(back).chain(steps);
        all.min_by_key(|(at, _)| *at).expect("there is always a next action")
    }

    fn step(&mut self, index: usize, step: Step) {
        let process = &mut self.processes[index];
        let Some(report) = process.step(step) else { return };
        let (member, reason, abandoned) = (process.member, reason(&report), report.abandoned);
        self.stage.world.record(Event::Stopped { member, reason, abandoned });
        self.end(index);
    }

    /// Removes a process. Without a connection the broker learns of its end by the timeout.
    fn end(&mut self, index: usize) {
        let process = self.processes.remove(index);
        self.cut.retain(|(member, _)| *member != process.member);
        let mut broker = self.stage.broker.lock().unwrap();
        if broker.sessions[process.member].is_member && broker.sessions[process.member].is_connected
        {
            broker.disconnect(process.member);
        }
        drop(broker);
        drop(process);
    }

    /// Restores the connections whose time has come.
    fn reconnect(&mut self) {
        let now = self.stage.world.now();
        let back = self.cut.extract_if(.., |(_, at)| *at <= now);
        for (member, _) in back {
            self.stage.world.record(Event::Back { member });
            self.stage.broker.lock().unwrap().reconnect(member);
        }
    }

    /// Acts as producer, operator and fault.
    fn act(&mut self) {
        let now = self.stage.world.now();
        if self.is_healed {
            self.next_action = now + 1_000_000;
            return;
        }
        // Of its own, so that the others do the same without this one.
        let mut random = Random::of(self.seed, &[5, self.actions]);
        let is_cut = self.cuts.actions.contains(&self.actions);
        self.actions += 1;
        self.next_action = now + random.within(10_000..1_500_000);
        let slots = usize::try_from(self.stage.settings.processes).unwrap();
        let may_start = random.chance(30) && self.processes.len() < slots && !is_cut;
        if self.processes.is_empty() || may_start {
            self.start();
        }
        if is_cut {
            return;
        }
        let running = self.processes.len() as u64;
        let index = usize::try_from(random.within(0..running)).unwrap();
        match random.within(0..100) {
            0..55 => self.produce(&mut random),
            55..70 => self.stage.broker.lock().unwrap().rebalance(),
            70..76 => self.kill(index),
            76..82 => self.freeze_or_cut(index, &mut random),
            82..87 => {
                let within = Duration::from_millis(random.within(0..3000));
                self.processes[index].stop(within);
            }
            87..89 => {
                let member = self.processes[index].member;
                let mut broker = self.stage.broker.lock().unwrap();
                broker.sessions[member].fails = true;
            }
            89..94 => {
                let ms = random.within(1..7_200_000).cast_signed();
                self.stage.world.step_wall(if random.chance(50) { ms } else { -ms });
            }
            _ => {}
        }
        if random.chance(30) && !self.processes.is_empty() {
            let running = self.processes.len() as u64;
            let index = usize::try_from(random.within(0..running)).unwrap();
            self.processes[index].operate(&mut random, &self.stage.settings);
        }
    }

    fn produce(&mut self, random: &mut Random) {
        let Settings { partitions, keys, .. } = self.stage.settings;
        let partition = u32::try_from(random.within(0..partitions)).unwrap();
        let count = random.within(1..40);
        self.stage.broker.lock().unwrap().produce(partition, count, keys);
    }

    fn kill(&mut self, index: usize) {
        self.stage.world.record(Event::Killed { member: self.processes[index].member });
        self.end(index);
    }

    /// Takes the connection of a process, or its processor, for a while.
    fn freeze_or_cut(&mut self, index: usize, random: &mut Random) {
        let process = &mut self.processes[index];
        let member = process.member;
        if self.cut.iter().any(|(cut, _)| *cut == member) || process.is_frozen() {
            return;
        }
        let ms = random.within(100..25_000);
        let until = self.stage.world.now() + ms * 1000;
        self.stage.world.record(match random.chance(50) {
            true => {
                process.freeze(until);
                Event::Frozen { member, ms }
            }
            false => Event::Cut { member },
        });
        self.stage.broker.lock().unwrap().disconnect(member);
        self.cut.push((member, until));
    }

    /// Ends all faults, and stops all processes.
    fn heal(&mut self) {
        self.is_healed = true;
        let now = self.stage.world.now();
        self.cut.iter_mut().for_each(|(_, at)| *at = now);
        self.reconnect();
        self.stage.behaviour.lock().unwrap().is_healed = true;
        self.stage.broker.lock().unwrap().is_faulty = false;
        self.stage.world.record(Event::Healed);
        for process in &mut self.processes {
            process.freeze(now);
            process.stop(Duration::from_secs(2));
        }
    }
}
