//! Promises of the orders other than by arrival: the places go to the least requirements, the
//! second keeps a worker where there are enough, jobs of unknown size share, no job is passed over
//! forever.

use keylane_allocate::{Claimant, End, JobId, JobPolicy, JobScheduler, Rule, Supply};

/// Assigns the free workers.
fn give_all(scheduler: &mut JobScheduler) -> Vec<(Claimant, Rule)> {
    std::iter::from_fn(|| scheduler.next(0)).map(|d| (d.to, d.rule)).collect()
}

fn end(scheduler: &mut JobScheduler, job: JobId) -> Vec<(Claimant, Rule)> {
    scheduler.ended(Claimant::Job(job), End::Done, 0);
    give_all(scheduler)
}

#[test]
fn with_six_workers_the_second_job_keeps_one_and_with_five_it_does_not() {
    for (workers, keeps) in [(5, false), (6, true)] {
        let mut scheduler = JobScheduler::new(workers).with_policy(JobPolicy::Balanced);
        let large = scheduler.submit(Supply::Ready(1000), 1, 0);
        give_all(&mut scheduler);
        let small = scheduler.submit(Supply::Ready(100), 1, 0);
        for _ in 0..workers - 1 {
            let given = end(&mut scheduler, large);
            assert_eq!(given.len(), 1);
            assert_eq!(given[0].0, Claimant::Job(small));
        }
        let last = end(&mut scheduler, large);
        let want = if keeps { (large, Rule::Keep) } else { (small, Rule::Least) };
        assert_eq!(last, [(Claimant::Job(want.0), want.1)]);
    }
}

#[test]
fn a_place_goes_to_a_newcomer_who_needs_less() {
    let mut scheduler = JobScheduler::new(6).with_policy(JobPolicy::Balanced);
    let [one, two] = [1000, 900].map(|n| scheduler.submit(Supply::Ready(n), 1, 0));
    give_all(&mut scheduler);
    assert_eq!(scheduler.progress(one).unwrap().running, 1);
    let small = scheduler.submit(Supply::Ready(50), 1, 0);
    assert_eq!(end(&mut scheduler, one), [(Claimant::Job(small), Rule::Admit)]);
    // The first has lost its place, and keeps nothing.
    assert_eq!(end(&mut scheduler, two), [(Claimant::Job(small), Rule::Least)]);
    assert_eq!(scheduler.progress(one).unwrap().running, 0);
}

#[test]
fn what_the_places_cannot_use_spills_over_to_the_line() {
    let mut scheduler = JobScheduler::new(8).with_policy(JobPolicy::Balanced);
    let jobs = [2, 3, 4].map(|n| scheduler.submit(Supply::Ready(n), 1, 0));
    give_all(&mut scheduler);
    let running = jobs.map(|job| scheduler.progress(job).unwrap().running);
    assert_eq!(running, [2, 3, 3], "no worker is idle");
}

#[test]
fn endless_jobs_share_evenly_and_by_weight() {
    for order in [JobPolicy::Balanced, JobPolicy::Shortest, JobPolicy::Arrival] {
        let mut scheduler = JobScheduler::new(3).with_policy(order);
        let endless = Supply::Split { expected: None };
        let jobs = [1, 1, 2].map(|weight| scheduler.submit(endless, weight, 0));
        let mut out = give_all(&mut scheduler);
        for _ in 0..4000 {
            let (who, _) = out.remove(0);
            scheduler.ended(who, End::Done, 0);
            out.extend(give_all(&mut scheduler));
        }
        let done = jobs.map(|job| scheduler.progress(job).unwrap().done);
        if order == JobPolicy::Arrival {
            // Each keeps one of the three.
            assert!(done.iter().all(|&done| (1300..1400).contains(&done)), "{done:?}");
        } else {
            assert!(done[0].abs_diff(done[1]) <= 32 && done[2].abs_diff(2000) <= 64, "{done:?}");
        }
    }
}

#[test]
fn who_waits_longest_has_its_turn_under_a_flood_of_short_ones() {
    for order in [JobPolicy::Balanced, JobPolicy::Shortest] {
        let mut scheduler = JobScheduler::new(1).with_policy(order);
        let long = [0; 3].map(|_| scheduler.submit(Supply::Ready(1000), 1, 0));
        let rounds = 30 * u64::from(JobPolicy::TURN);
        let mut turns = Vec::new();
        for round in 0..rounds {
            scheduler.submit(Supply::Ready(1), 1, round);
            let decision = scheduler.next(round).unwrap();
            if let Claimant::Job(job) = decision.to
                && long.contains(&job)
            {
                turns.push((round, job, decision.rule));
            }
            scheduler.ended(decision.to, End::Done, round);
        }
        // Now and then, and each in turn; that of the short ones that is passed over comes right
        // after.
        assert_eq!(turns.len(), 30);
        for (number, (round, job, rule)) in turns.into_iter().enumerate() {
            assert_eq!(round + 1, (number as u64 + 1) * u64::from(JobPolicy::TURN));
            assert_eq!(job, long[number % 3]);
            assert_eq!(rule, if number < 3 { Rule::Admit } else { Rule::Aged });
        }
    }
}

#[test]
fn loose_work_and_jobs_do_not_wait_for_each_other() {
    for workers in [1, 2, 8] {
        let mut scheduler = JobScheduler::new(workers).with_policy(JobPolicy::Balanced);
        let job = scheduler.submit(Supply::Ready(10_000), 1, 0);
        scheduler.loose_ready(true, 0);
        let mut out = give_all(&mut scheduler);
        let mut loose = 0;
        for _ in 0..1000 {
            let (who, _) = out.remove(0);
            loose += usize::from(who == Claimant::Loose);
            scheduler.ended(who, End::Done, 0);
            out.extend(give_all(&mut scheduler));
        }
        let done = scheduler.progress(job).unwrap().done as usize;
        // The job has one worker, the others are for what needs least.
        let share = 1000 / workers.max(2);
        assert!(done.abs_diff(share) <= 2, "{done} of the job, {loose} loose, {workers} workers");
    }
}
