//! Promises of the rules beyond the article's timeline, one test for each.

use keylane_allocate::{
    Claimant, Decision, End, JobId, JobPolicy, JobScheduler, Rule, Supply, Take,
};

/// Assigns all free workers at `now`, each with its rule.
fn give_all(scheduler: &mut JobScheduler, now: u64) -> Vec<(Claimant, Rule)> {
    std::iter::from_fn(|| scheduler.next(now)).map(|d| (d.to, d.rule)).collect()
}

fn job(decision: Option<Decision>) -> JobId {
    match decision.expect("somebody gets a worker").to {
        Claimant::Job(job) => job,
        Claimant::Loose => panic!("loose work got it"),
    }
}

#[test]
fn the_ageing_bound_gives_a_job_held_at_one_worker_a_second_one() {
    // A flood of jobs of one subtask, under which a large job would stay at one worker forever.
    let longest_at_one_worker = |scheduler: JobScheduler| {
        let mut scheduler = scheduler;
        let large = scheduler.submit(Supply::Ready(10_000), 1, 0);
        assert_eq!(job(scheduler.next(0)), large);
        let (mut out, mut since, mut longest) = (vec![Claimant::Job(large)], 0, 0);
        for now in 1..1000 {
            for _ in 0..2 {
                scheduler.submit(Supply::Ready(1), 1, now);
            }
            scheduler.ended(out.remove(0), End::Done, now);
            out.extend(give_all(&mut scheduler, now).into_iter().map(|(who, _)| who));
            if scheduler.progress(large).unwrap().running >= 2 {
                since = now;
            }
            longest = longest.max(now - since);
        }
        longest
    };
    assert!(longest_at_one_worker(JobScheduler::new(4)) > 990);
    // Each round ends one subtask, and at most one of the rounds after the bound is the job's own.
    let longest = longest_at_one_worker(JobScheduler::new(4).with_patience(50));
    assert!((50..60).contains(&longest), "{longest}");
}

#[test]
fn under_a_flood_of_everything_nobody_starves() {
    // New jobs all the time, admitted beyond the number of workers, and loose work without end: the
    // waiting jobs, the admitted ones and the loose work all go on.
    for (most, begun_at_least) in [(Some(1000), 100), (None, 2)] {
        let mut scheduler = JobScheduler::new(2).with_max_active(most);
        let first = scheduler.submit(Supply::Ready(1000), 1, 0);
        scheduler.loose_ready(true, 0);
        let mut out: Vec<_> = give_all(&mut scheduler, 0).into_iter().map(|(who, _)| who).collect();
        let (mut loose, mut begun) = (0, 1);
        for now in 1..1000 {
            scheduler.submit(Supply::Ready(1000), 1, now);
            scheduler.ended(out.remove(0), End::Done, now);
            for (who, rule) in give_all(&mut scheduler, now) {
                loose += u32::from(who == Claimant::Loose);
                begun += u32::from(who != Claimant::Loose && rule == Rule::Admit);
                out.push(who);
            }
        }
        let done = scheduler.progress(first).unwrap().done;
        assert!(done > 5 && loose > 5 && begun >= begun_at_least, "{done}, {loose}, {begun}");
    }
}

#[test]
fn shortest_first_serves_the_least_requirement_in_the_line_or_not() {
    let mut scheduler = JobScheduler::new(2).with_policy(JobPolicy::Shortest);
    let long = scheduler.submit(Supply::Ready(100), 1, 0);
    assert_eq!(give_all(&mut scheduler, 0).len(), 2);
    let short = scheduler.submit(Supply::Ready(3), 1, 0);
    let shorter = scheduler.submit(Supply::Ready(2), 1, 0);
    let mut given = Vec::new();
    for now in 1..=5 {
        let running = |job| scheduler.progress(job).is_some_and(|progress| progress.running > 0);
        let ends = [long, shorter, short].into_iter().find(|job| running(*job)).unwrap();
        scheduler.ended(Claimant::Job(ends), End::Done, now);
        given.extend(give_all(&mut scheduler, now).into_iter().map(|(who, _)| who));
    }
    assert_eq!(given, [shorter, shorter, short, short, short].map(Claimant::Job));
}

#[test]
fn under_shortest_first_the_ageing_bound_keeps_a_long_job_going() {
    let subtasks_of_the_long_one = |scheduler: JobScheduler| {
        let mut scheduler = scheduler;
        let long = scheduler.submit(Supply::Ready(1000), 1, 0);
        for now in 1..1000 {
            scheduler.submit(Supply::Ready(1), 1, now);
            let who = scheduler.next(now).unwrap().to;
            scheduler.ended(who, End::Done, now);
        }
        scheduler.progress(long).unwrap().done
    };
    let short_first = || JobScheduler::new(1).with_policy(JobPolicy::Shortest);
    // Without a bound it still has its turn.
    assert_eq!(subtasks_of_the_long_one(short_first()), 999 / u64::from(JobPolicy::TURN));
    assert_eq!(subtasks_of_the_long_one(short_first().with_patience(100)), 9);
}

#[test]
fn ageing_takes_no_job_its_only_worker() {
    let mut scheduler = JobScheduler::new(2).with_patience(5);
    let jobs = [0; 2].map(|_| scheduler.submit(Supply::Ready(100), 1, 0));
    give_all(&mut scheduler, 0);
    for now in 1..50 {
        let job = jobs[now as usize % 2];
        scheduler.ended(Claimant::Job(job), End::Done, now);
        assert_eq!(give_all(&mut scheduler, now), [(Claimant::Job(job), Rule::Keep)]);
    }
}

#[test]
fn a_job_whose_subtasks_all_wait_for_keys_does_not_hold_back_what_spills_over() {
    let mut scheduler = JobScheduler::new(3);
    let split = Supply::Split { expected: Some(4) };
    let keyed = scheduler.submit(split, 1, 0);
    let other = scheduler.submit(Supply::Ready(50), 1, 0);
    for _ in 0..2 {
        let who = scheduler.next(0).unwrap().to;
        if who == Claimant::Job(keyed) {
            scheduler.ended(who, End::Waits, 0);
        }
        scheduler.hold_splitter(keyed, true, 0);
    }
    let rest = give_all(&mut scheduler, 0);
    assert_eq!(rest.iter().map(|(who, _)| *who).collect::<Vec<_>>(), [Claimant::Job(other); 2]);
    assert_eq!(scheduler.progress(keyed).unwrap().requirement(), Some(4));
    // Its key is free: it needs less than the other, and has no worker.
    scheduler.ready(keyed, 1, 1);
    scheduler.ended(Claimant::Job(other), End::Done, 1);
    let decision = scheduler.next(1).unwrap();
    assert_eq!((decision.to, decision.rule), (Claimant::Job(keyed), Rule::Keep));
    assert_eq!(decision.take, Take::Ready);
}

#[test]
fn a_job_that_can_do_nothing_keeps_nobody_out() {
    let mut scheduler = JobScheduler::new(1);
    let stuck = scheduler.submit(Supply::Split { expected: None }, 1, 0);
    let next = scheduler.submit(Supply::Ready(1), 1, 0);
    assert_eq!(job(scheduler.next(0)), stuck);
    scheduler.hold_splitter(stuck, true, 0);
    scheduler.ended(Claimant::Job(stuck), End::Waits, 0);
    assert_eq!((job(scheduler.next(0)), scheduler.active()), (next, 1));
}

#[test]
fn loose_work_is_never_kept_out_by_the_bound() {
    // The only active job waits for a key that a loose task has: kept out, neither would ever end.
    let mut scheduler = JobScheduler::new(2).with_max_active(1);
    let job = scheduler.submit(Supply::Ready(5), 1, 0);
    give_all(&mut scheduler, 0);
    scheduler.ended(Claimant::Job(job), End::Waits, 0);
    scheduler.loose_ready(true, 0);
    assert_eq!(scheduler.next(0).unwrap().to, Claimant::Loose);
}

#[test]
fn loose_work_and_the_line_take_turns_and_each_job_keeps_a_worker() {
    let mut scheduler = JobScheduler::new(4);
    scheduler.loose_ready(true, 0);
    assert_eq!(give_all(&mut scheduler, 0).len(), 4);
    let jobs: Vec<_> = (0..3).map(|_| scheduler.submit(Supply::Ready(9), 1, 1)).collect();
    let mut given = Vec::new();
    for now in 2..7 {
        scheduler.ended(Claimant::Loose, End::Done, now);
        given.extend(give_all(&mut scheduler, now));
    }
    // The last that rule 2 let in was loose, so the line is first.
    let loose = (Claimant::Loose, Rule::Admit);
    let [a, b, c] = [0, 1, 2].map(|i| (Claimant::Job(jobs[i]), Rule::Admit));
    assert_eq!(given, [a, loose, b, loose, c]);
    // Of four workers three are the jobs'. Each gets its own back, whatever else is ready.
    for job in jobs {
        scheduler.ended(Claimant::Job(job), End::Done, 7);
        assert_eq!(give_all(&mut scheduler, 7), [(Claimant::Job(job), Rule::Keep)]);
    }
}

#[test]
fn loose_work_gets_a_worker_within_a_turn_of_the_jobs_that_have_them_all() {
    let mut scheduler = JobScheduler::new(2);
    let jobs = [0; 2].map(|_| scheduler.submit(Supply::Ready(50), 1, 0));
    give_all(&mut scheduler, 0);
    scheduler.loose_ready(true, 0);
    scheduler.ended(Claimant::Job(jobs[0]), End::Done, 1);
    assert_eq!(give_all(&mut scheduler, 1), [(Claimant::Loose, Rule::Keep)]);
    scheduler.ended(Claimant::Loose, End::Done, 2);
    assert_eq!(give_all(&mut scheduler, 2), [(Claimant::Job(jobs[0]), Rule::Keep)]);
}

#[test]
fn stale_news_of_loose_work_costs_one_worker_one_look() {
    let mut scheduler = JobScheduler::new(1);
    scheduler.loose_ready(true, 0);
    assert_eq!(scheduler.next(0).unwrap().to, Claimant::Loose);
    assert!(!scheduler.ended(Claimant::Loose, End::Nothing, 0));
    assert_eq!((scheduler.next(0), scheduler.busy()), (None, 0));
}

#[test]
fn weight_scales_the_claim_to_spare_workers() {
    let mut scheduler = JobScheduler::new(3);
    let small = scheduler.submit(Supply::Ready(10), 1, 0);
    let heavy = scheduler.submit(Supply::Ready(20), 3, 0);
    let given: Vec<_> = give_all(&mut scheduler, 0).into_iter().map(|(who, _)| who).collect();
    assert_eq!(given, [small, heavy, heavy].map(Claimant::Job));
    scheduler.set_weight(heavy, 1, 0);
    scheduler.ended(Claimant::Job(heavy), End::Done, 0);
    assert_eq!(give_all(&mut scheduler, 0), [(Claimant::Job(small), Rule::Least)]);
}

#[test]
fn of_whom_nobody_knows_the_length_comes_after_those_of_whom_one_does() {
    let mut scheduler = JobScheduler::new(3);
    let endless = scheduler.submit(Supply::Split { expected: None }, 9, 0);
    let known = scheduler.submit(Supply::Ready(1_000_000), 1, 0);
    let given: Vec<_> = give_all(&mut scheduler, 0).into_iter().map(|(who, _)| who).collect();
    assert_eq!(given, [endless, known, known].map(Claimant::Job));
}

#[test]
fn a_splitter_that_ends_early_or_late_is_believed() {
    for made in [0, 2, 5] {
        let mut scheduler = JobScheduler::new(2);
        let job = scheduler.submit(Supply::Split { expected: Some(3) }, 1, 0);
        let (mut left, mut asked) = (made, 0);
        while let Some(decision) = scheduler.next(0) {
            assert_eq!(decision.take, Take::Split);
            asked += 1;
            let end = if left == 0 { End::Nothing } else { End::Done };
            left -= u64::from(left > 0);
            scheduler.ended(Claimant::Job(job), end, 0);
        }
        assert_eq!((asked, scheduler.unfinished()), (made + 1, 0));
    }
}

#[test]
fn workers_that_find_the_end_of_a_splitter_together_are_all_waited_for() {
    let mut scheduler = JobScheduler::new(3);
    let job = scheduler.submit(Supply::Split { expected: None }, 1, 0);
    assert_eq!(give_all(&mut scheduler, 0).len(), 3);
    assert!(!scheduler.ended(Claimant::Job(job), End::Nothing, 0));
    assert!(!scheduler.ended(Claimant::Job(job), End::Nothing, 0));
    assert_eq!(scheduler.next(0), None);
    assert!(scheduler.ended(Claimant::Job(job), End::Done, 0));
}

#[test]
fn a_paused_job_begins_nothing_and_goes_on_where_it_was() {
    let mut scheduler = JobScheduler::new(2);
    let paused = scheduler.submit(Supply::Ready(10), 1, 0);
    let first = scheduler.next(0).unwrap().to;
    assert!(scheduler.pause(paused, 0));
    let other = scheduler.submit(Supply::Ready(3), 1, 0);
    assert_eq!(job(scheduler.next(0)), other);
    scheduler.ended(first, End::Done, 1);
    assert_eq!(job(scheduler.next(1)), other);
    assert!(scheduler.resume(paused, 2));
    scheduler.ended(Claimant::Job(other), End::Done, 2);
    let decision = scheduler.next(2).unwrap();
    assert_eq!((decision.to, decision.rule), (Claimant::Job(paused), Rule::Keep));
    assert_eq!(scheduler.progress(paused).unwrap().requirement(), Some(9));
}

#[test]
fn a_cancelled_job_is_over_when_what_runs_has_ended() {
    let mut scheduler = JobScheduler::new(2);
    let job = scheduler.submit(Supply::Ready(10), 1, 0);
    give_all(&mut scheduler, 0);
    assert!(scheduler.cancel(job, 0));
    assert!(!scheduler.cancel(job, 0), "only once");
    assert!(!scheduler.ended(Claimant::Job(job), End::Done, 1));
    assert_eq!(scheduler.next(1), None);
    assert!(scheduler.ended(Claimant::Job(job), End::Waits, 1));
    assert_eq!(scheduler.progress(job), None);
    // Its slot is used again; the old id reaches no other job.
    let next = scheduler.submit(Supply::Ready(1), 1, 1);
    assert!(next != job && !scheduler.cancel(job, 1) && !scheduler.ready(job, 1, 1));
    assert!(scheduler.progress(next).is_some());
}

#[test]
fn a_smaller_size_takes_nothing_away_and_a_larger_one_is_used_at_once() {
    let mut scheduler = JobScheduler::new(3);
    let jobs = [0; 3].map(|_| scheduler.submit(Supply::Ready(9), 1, 0));
    give_all(&mut scheduler, 0);
    scheduler.resize(1, 0);
    assert_eq!((scheduler.busy(), scheduler.active()), (3, 3));
    for job in &jobs[..2] {
        scheduler.ended(Claimant::Job(*job), End::Done, 1);
        assert_eq!(scheduler.next(1), None, "still as many busy as there are workers");
    }
    // One worker for three active jobs: they take turns.
    let mut turn = Claimant::Job(jobs[2]);
    for now in 2..8 {
        scheduler.ended(turn, End::Done, now);
        turn = scheduler.next(now).unwrap().to;
        assert_eq!(turn, Claimant::Job(jobs[(now as usize - 2) % 3]));
    }
    scheduler.resize(4, 8);
    assert_eq!(give_all(&mut scheduler, 8).len(), 3);
}

#[test]
fn what_a_worker_ran_beyond_its_one_subtask_counts() {
    let mut scheduler = JobScheduler::new(1);
    let job = scheduler.submit(Supply::Split { expected: Some(100) }, 1, 0);
    let decision = scheduler.next(0).unwrap();
    assert!(scheduler.is_alone(job));
    scheduler.ran_more(job, decision.take, 60, 3, 1);
    let progress = scheduler.progress(job).unwrap();
    assert_eq!((progress.done, progress.failed, progress.requirement()), (60, 3, Some(37)));
    let other = scheduler.submit(Supply::Ready(1), 1, 2);
    assert!(!scheduler.is_alone(job) && !scheduler.is_alone(other));
}

#[test]
fn a_record_keeps_the_last_events_and_can_still_be_replayed() {
    let mut scheduler = JobScheduler::new(2);
    scheduler.record(10);
    scheduler.submit(Supply::Ready(500), 1, 0);
    scheduler.submit(Supply::Ready(300), 1, 0);
    let mut out = Vec::new();
    for now in 0..200 {
        out.extend(give_all(&mut scheduler, now).into_iter().map(|(who, _)| who));
        scheduler.ended(out.remove(0), End::Done, now);
        scheduler.recorded().unwrap().replay().unwrap();
    }
    let record = scheduler.recorded().unwrap();
    assert_eq!(record.entries().count(), 10);
    assert!(record.dropped() > 300);
    assert_eq!(record.entries().last().unwrap().at, 199);
}

#[test]
#[should_panic(expected = "no worker that could end")]
fn an_end_that_nobody_began_is_a_mistake() {
    let mut scheduler = JobScheduler::new(1);
    let job = scheduler.submit(Supply::Ready(1), 1, 0);
    scheduler.ended(Claimant::Job(job), End::Done, 0);
}

#[test]
fn nothing_is_offered_while_all_workers_are_busy() {
    let mut scheduler = JobScheduler::new(1);
    let endless = scheduler.submit(Supply::Ready(9), 1, 0);
    assert!(scheduler.could_decide());
    assert_eq!(job(scheduler.next(0)), endless);
    assert_eq!(
        (scheduler.could_decide(), scheduler.peek(0), scheduler.next(0)),
        (false, None, None)
    );
    scheduler.ended(Claimant::Job(endless), End::Done, 1);
    assert!(scheduler.could_decide());
}

/// Work outside jobs counts as a job only if there is any: the queue goes first only where it would be
/// admitted beyond the number of workers.
#[test]
fn an_admitted_job_has_its_worker_back_before_the_next_job_is_admitted() {
    let mut scheduler = JobScheduler::new(2);
    let first = scheduler.submit(Supply::Ready(4), 1, 0);
    assert_eq!(give_all(&mut scheduler, 0).len(), 2);
    let second = scheduler.submit(Supply::Ready(1), 1, 1);
    scheduler.ended(Claimant::Job(first), End::Done, 2);
    scheduler.ended(Claimant::Job(first), End::Done, 2);
    let given = give_all(&mut scheduler, 2);
    let (first, second) = (Claimant::Job(first), Claimant::Job(second));
    assert_eq!(given, [(first, Rule::Keep), (second, Rule::Admit)]);
}
