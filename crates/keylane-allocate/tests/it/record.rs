//! A record of decisions, as text: it is read back and replays to the same decisions, and invalid
//! text is refused with its line, or by the replay, and never panics.

use keylane_allocate::{Claimant, End, JobPolicy, JobScheduler, Record, Supply};
use proptest::prelude::*;

/// Drives an scheduler at random, with every kind of event.
fn drive(scheduler: &mut JobScheduler, steps: &[(u8, u64)]) {
    let (mut out, mut jobs, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for (now, &(what, n)) in steps.iter().enumerate() {
        let now = now as u64 * 3;
        let some = |jobs: &Vec<_>| (!jobs.is_empty()).then(|| jobs[n as usize % jobs.len()]);
        match (what % 16, some(&jobs)) {
            (0..4, _) => {
                let supply = match n % 4 {
                    0 => Supply::Ready(n % 9),
                    1 => Supply::Split { expected: Some(n % 9) },
                    2 => Supply::Lined { ready: n % 3, waiting: n % 5 },
                    _ => Supply::Split { expected: None },
                };
                let job = scheduler.submit(supply, n as u32 % 4, now);
                let waits = scheduler.progress(job).map_or(0, |progress| progress.waiting);
                waiting.extend((0..waits).map(|_| job));
                jobs.push(job);
            }
            (14, Some(job)) if n % 5 == 0 => {
                let ready = scheduler.progress(job).map_or(0, |progress| progress.ready);
                let count = (n % 3).min(ready);
                if scheduler.unready(job, count, now) {
                    waiting.extend((0..count).map(|_| job));
                }
            }
            (14, Some(job)) => {
                let is_live = scheduler.came(job, n % 3, n % 2, now);
                let waits = if is_live { n % 2 } else { 0 };
                waiting.extend((0..waits).map(|_| job));
            }
            (4, Some(job)) => drop(scheduler.pause(job, now)),
            (5, Some(job)) => drop(scheduler.resume(job, now)),
            (6, Some(job)) => drop(scheduler.set_weight(job, n as u32 % 5, now)),
            (7, Some(job)) if n % 4 == 0 => drop(scheduler.cancel(job, now)),
            (8, Some(job)) => drop(scheduler.hold_splitter(job, n % 2 == 0, now)),
            (9, Some(job)) => drop(scheduler.exhausted(job, now)),
            (10, _) => scheduler.loose_ready(n % 2 == 0, now),
            (11, _) => scheduler.resize(n as usize % 5, now),
            (12, _) => scheduler.set_max_active((n % 4 != 0).then_some(n as usize % 4), now),
            (13, _) if !waiting.is_empty() => {
                let job = waiting.swap_remove(n as usize % waiting.len());
                if n % 2 == 0 {
                    scheduler.ready(job, 1, now);
                } else {
                    scheduler.settled(job, n % 4 == 1, now);
                }
            }
            _ if !out.is_empty() => {
                let who = out.swap_remove(n as usize % out.len());
                let end = [End::Done, End::Failed, End::Waits, End::Nothing][n as usize % 4];
                if let Claimant::Job(job) = who {
                    if end == End::Waits && scheduler.progress(job).is_some() {
                        waiting.push(job);
                    }
                    scheduler.split_more(job, n % 3, now);
                }
                scheduler.ended(who, end, now);
                // Cancelled jobs forget their waiting subtasks.
                waiting.retain(|&job| scheduler.progress(job).is_some_and(|p| p.waiting > 0));
            }
            _ => {}
        }
        while let Some(decision) = scheduler.next(now) {
            out.push(decision.to);
        }
    }
}

fn orders() -> impl Strategy<Value = JobPolicy> {
    prop::sample::select(&[JobPolicy::Arrival, JobPolicy::Balanced, JobPolicy::Shortest][..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_is_read_back_and_replays(
        workers in 0..8_usize,
        patience in prop::option::of(0..50_u64),
        order in orders(),
        capacity in 1..200_usize,
        steps in prop::collection::vec((any::<u8>(), 0..1000_u64), 0..300),
    ) {
        let mut scheduler = JobScheduler::new(workers).with_policy(order);
        if let Some(patience) = patience {
            scheduler = scheduler.with_patience(patience);
        }
        scheduler.record(capacity);
        drive(&mut scheduler, &steps);
        let record = scheduler.recorded().unwrap();
        record.replay().unwrap();
        let text = record.to_string();
        let read: Record = text.parse().unwrap();
        prop_assert_eq!(read.to_string(), text);
        prop_assert!(read.entries().eq(record.entries()));
        prop_assert_eq!(read.dropped(), record.dropped());
        read.replay().unwrap();
    }

    /// Each line of a record changed in one place: refused, found out by the replay, or harmless.
    #[test]
    fn a_record_that_was_tampered_with_never_panics(
        order in orders(),
        steps in prop::collection::vec((any::<u8>(), 0..1000_u64), 20..120),
        changes in prop::collection::vec((any::<u16>(), any::<u16>(), any::<u8>()), 1..8),
    ) {
        let mut scheduler = JobScheduler::new(3).with_policy(order);
        scheduler.record(40);
        drive(&mut scheduler, &steps);
        let mut lines: Vec<String> =
            scheduler.recorded().unwrap().to_string().lines().map(str::to_owned).collect();
        for (line, word, how) in changes {
            let line = line as usize % lines.len();
            let mut words: Vec<String> = lines[line].split(' ').map(str::to_owned).collect();
            let word = word as usize % words.len();
            let field = words[word].clone();
            let (name, _) = field.split_once('=').unwrap_or((&field, ""));
            let values =
                ["0", "1", "7", "-", "yes", "no", "loose", "0/0", "1/0", "2/1", "ready:3", "lined:1/2", "split:-",
                 "closed", "done", "waits", "nothing", "281474976710656", "99999999999999999999"];
            match how % 24 {
                0 => drop(words.remove(word)),
                1 => drop(lines.remove(line)),
                2 => lines.swap(line, 0),
                n => words[word] = format!("{name}={}", values[(n as usize - 3) % values.len()]),
            }
            if how % 24 != 1 && how % 24 != 2 {
                lines[line] = words.join(" ");
            }
            if lines.is_empty() {
                break;
            }
        }
        match lines.join("\n").parse::<Record>() {
            Ok(record) => drop(record.replay()),
            Err(error) => prop_assert!(error.line() >= 1 && error.line() <= lines.len().max(1)),
        }
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let mut scheduler = JobScheduler::new(2);
    scheduler.record(10);
    scheduler.submit(Supply::Ready(2), 1, 0);
    scheduler.next(0);
    let text = scheduler.recorded().unwrap().to_string();
    let error = |from: &str, to: &str| {
        assert!(text.contains(from));
        text.replacen(from, to, 1).parse::<Record>().unwrap_err().to_string()
    };
    assert_eq!(
        error("record 1", "record 2"),
        "line 1: a record must begin with `keylane record 1`"
    );
    assert_eq!(
        error("workers=2", "workers=two"),
        "line 2: `two` is not a valid value of `workers`"
    );
    assert_eq!(error("now=0 ", ""), "line 3: expected `now=`, found `serials=0`");
    assert_eq!(error("was-last=no", "was-last=no 5"), "line 4: unexpected field `5`");
    assert_eq!(error("was-last=no", ""), "line 4: `was-last=` is missing");
    assert_eq!(
        error("event at=0 submitted", "event at=0 forgot"),
        "line 5: unknown event type `forgot`"
    );
    assert_eq!(
        error("event at=0 decided", "even at=0 decided"),
        "line 6: unknown line type `even`"
    );
    assert_eq!(
        error("loose ready", "free slot=0\nloose ready"),
        "line 4: a `free` line is not allowed here"
    );
    assert_eq!("".parse::<Record>().unwrap_err().line(), 1);
    let comments = format!("\n# by hand\n{}\n\n", text.replace("rules", "\n  # and here\nrules"));
    comments.parse::<Record>().unwrap().replay().unwrap();
}

/// The article's example with a second for each minute, in milliseconds.
fn article() -> String {
    let mut scheduler = JobScheduler::new(4);
    scheduler.record(1000);
    let mut running: Vec<(u64, Claimant)> = Vec::new();
    let give = |scheduler: &mut JobScheduler, running: &mut Vec<_>, now| {
        while let Some(decision) = scheduler.next(now) {
            running.push((now + 1000, decision.to));
        }
    };
    for (arrival, subtasks) in [(0, Some(20)), (2010, Some(4)), (u64::MAX, None)] {
        while running.first().is_some_and(|(end, _)| *end <= arrival) {
            let (now, who) = running.remove(0);
            scheduler.ended(who, End::Done, now);
            give(&mut scheduler, &mut running, now);
        }
        if let Some(subtasks) = subtasks {
            scheduler.submit(Supply::Ready(subtasks), 1, arrival);
            give(&mut scheduler, &mut running, arrival);
        }
    }
    scheduler.recorded().unwrap().to_string()
}

/// The format is stable: text of the first version is read by this one, and this one writes the
/// same.
#[test]
fn a_record_of_version_1_is_read_and_written_as_ever() {
    let file = include_str!("../../../../examples/jobs/article.record");
    let record: Record = file.parse().unwrap();
    record.replay().unwrap();
    let without_comments: Vec<_> = file.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(article().lines().collect::<Vec<_>>(), without_comments);
}

#[test]
fn a_state_that_cannot_be_is_refused() {
    let job = |id: &str, more: &str| {
        format!(
            "job id={id} weight=1 splitter=closed held=no {more} running=0 waiting=0 done=0 failed=0 \
             admitted=no paused=no cancelled=no arrival=4 needs-since=- held-down-since=-\n"
        )
    };
    let text = |jobs: &[String]| {
        "keylane record 1\n\
         rules workers=1 max-active=- patience=5 order=arrival\n\
         state now=10 serials=2 needs=0 passed-over=0 line-had-its-turn=no dropped=3\n\
         loose ready=no running=0 needs-since=- had-its-turn=no was-last=no\n"
            .to_owned()
            + &jobs.concat()
    };
    let error = |jobs: &[String]| text(jobs).parse::<Record>().unwrap_err().to_string();
    let (one, two) = (job("0/0", "ready=1"), job("1/1", "ready=1"));
    let right: Record = text(&[one.clone(), two.clone()]).parse().unwrap();
    assert_eq!((right.dropped(), right.workers()), (3, 1));
    right.replay().unwrap();
    assert_eq!(right.to_string(), text(&[one.clone(), two.clone()]));

    let twice = "a slot is missing or listed twice";
    assert_eq!(error(&[one.clone(), job("1/0", "ready=1")]), format!("line 6: {twice}"));
    assert_eq!(error(std::slice::from_ref(&two)), format!("line 5: {twice}"));
    assert_eq!(error(&[one.clone(), "free slot=0\n".into()]), format!("line 6: {twice}"));
    assert_eq!(
        error(&[one.replace("arrival=4", "arrival=11")]),
        "line 5: time 11 is later than `now` of the `state` line"
    );
    assert_eq!(
        error(&[one.replace("since=-", "since=11/0")]),
        "line 5: time 11 is later than `now` of the `state` line"
    );
    assert_eq!(
        error(&[job("2/0", "ready=1")]),
        "line 5: `job 2` was not submitted before this state"
    );
    assert_eq!(error(&[job("0/0", "ready=0")]), "line 5: `job 0` has already ended");
}
