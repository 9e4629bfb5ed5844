//! No active job waits long: as long as no more jobs are active than there are workers, one that
//! has something to do and no worker gets one before the longest subtask is over.
//!
//! Random jobs in virtual time, whose subtasks take between 1 and `LONGEST`, wait for something now
//! and then, and whose jobs are paused and resumed. The README has the proof.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use keylane_allocate::{Claimant, End, JobId, JobScheduler, Supply};
use proptest::prelude::*;

const LONGEST: u64 = 20;

#[derive(Clone, Debug)]
struct Arrival {
    after: u64,
    subtasks: u64,
    /// How long the subtasks take, and for how long they wait instead, in turns.
    lengths: Vec<(u64, Option<u64>)>,
    /// When it is paused and when it is resumed, counted from its arrival.
    pause: Option<(u64, u64)>,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let length = (1..=LONGEST, prop::option::weighted(0.2, 1..100_u64));
    let arrival = (
        0..30_u64,
        1..25_u64,
        prop::collection::vec(length, 1..6),
        prop::option::weighted(0.2, (0..50_u64, 50..200_u64)),
    );
    let arrival = arrival.prop_map(|(after, subtasks, mut lengths, pause)| {
        // So that every job comes to an end.
        lengths[0].1 = None;
        Arrival { after, subtasks, lengths, pause }
    });
    prop::collection::vec(arrival, 1..20)
}

/// Ends first, as the rules have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End(JobId, bool),
    Ready(JobId),
    Pause(JobId),
    Resume(JobId),
    Arrive(usize),
}

#[derive(Default)]
struct Plan {
    lengths: Vec<(u64, Option<u64>)>,
    begun: usize,
    needs_since: Option<u64>,
}

fn run(workers: usize, max_active: usize, arrivals: &[Arrival]) {
    let mut scheduler = JobScheduler::new(workers).with_max_active(max_active);
    let mut events = BinaryHeap::new();
    let mut time = 0;
    for (number, arrival) in arrivals.iter().enumerate() {
        time += arrival.after;
        events.push(Reverse((time, Event::Arrive(number))));
    }
    let mut plans: HashMap<JobId, Plan> = HashMap::new();
    while let Some(Reverse((now, event))) = events.pop() {
        match event {
            Event::Arrive(number) => {
                let Arrival { subtasks, lengths, pause, .. } = &arrivals[number];
                let job = scheduler.submit(Supply::Ready(*subtasks), 1, now);
                plans.insert(job, Plan { lengths: lengths.clone(), ..Plan::default() });
                if let Some((paused, resumed)) = pause {
                    events.push(Reverse((now + paused, Event::Pause(job))));
                    events.push(Reverse((now + resumed, Event::Resume(job))));
                }
            }
            Event::End(job, waits) => {
                let end = if waits { End::Waits } else { End::Done };
                scheduler.ended(Claimant::Job(job), end, now);
            }
            Event::Ready(job) => assert!(scheduler.ready(job, 1, now)),
            Event::Pause(job) => drop(scheduler.pause(job, now)),
            Event::Resume(job) => drop(scheduler.resume(job, now)),
        }
        while let Some(decision) = scheduler.next(now) {
            let Claimant::Job(job) = decision.to else { panic!("there is no loose work") };
            let plan = plans.get_mut(&job).unwrap();
            let (length, waits) = plan.lengths[plan.begun % plan.lengths.len()];
            plan.begun += 1;
            events.push(Reverse((now + length, Event::End(job, waits.is_some()))));
            if let Some(wait) = waits {
                events.push(Reverse((now + length + wait, Event::Ready(job))));
            }
        }
        for (job, plan) in &mut plans {
            let needs = scheduler.progress(*job).is_some_and(|progress| {
                let offers = progress.ready > 0 && !progress.paused;
                progress.admitted && progress.running == 0 && offers
            });
            plan.needs_since = needs.then(|| plan.needs_since.unwrap_or(now));
            let waited = now - plan.needs_since.unwrap_or(now);
            // Jobs that were paused or waited come back beside those that were let in meanwhile;
            // then there are more than workers, and each waits for its turn.
            let turns = scheduler.active().saturating_sub(workers) as u64;
            assert!(waited <= LONGEST * (1 + turns), "{job} waited {waited}, {turns} too many");
        }
    }
    assert_eq!(scheduler.unfinished(), 0, "everybody is done");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_active_job_gets_a_worker_before_the_longest_subtask_is_over(
        workers in 1..6_usize,
        fewer in 0..3_usize,
        arrivals in arrivals(),
    ) {
        run(workers, workers.saturating_sub(fewer).max(1), &arrivals);
    }
}
