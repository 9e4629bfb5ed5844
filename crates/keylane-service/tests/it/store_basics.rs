//! What is written is read, by whatever way it is asked for; and stays so when the store is opened again.

use std::sync::{Arc, Mutex, mpsc};

use crate::store_support::{
    NOW, accepted, claims, copy_as_is, count_rows, is_in_file, keys, new_job, new_store, open,
    open_with, outcome, payload, place, upload, waiting,
};
use keylane_service::store::{
    Changes, IdempotencyEntry, JobFilter, JobPredicate, JobState, JobStatus, KeyBlockReason,
    KeyRecord, OutcomeCounts, OutcomeKind, Store, StoreSettings, WriteError,
};
use keylane_service::{JobNumber, Key, SubtaskId};

fn over(state: JobState, counts: OutcomeCounts) -> JobStatus {
    JobStatus { ended_ms: Some(NOW + 99), counts, ..JobStatus::of(state) }
}

fn submit(store: &Store, with: impl FnOnce(&mut Changes)) {
    let mut changes = Changes::new();
    with(&mut changes);
    store.submit(changes).wait().unwrap();
}

#[test]
fn a_job_is_what_was_uploaded_small_or_large() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let totals = [0, 1, 3, 1024, 1025, 5000];
    let jobs = totals.map(|total| accepted(&store, total));
    let look = |store: &Store| {
        for (job, total) in jobs.into_iter().zip(totals) {
            let stored = store.job(job).unwrap().unwrap();
            let expected = new_job(job);
            assert_eq!((stored.number, stored.total, stored.status), (job, total, expected.status));
            assert_eq!((stored.kind, stored.head), (expected.kind, expected.head));
            assert_eq!((stored.created_ms, stored.id.number()), (expected.created_ms, job));
            let mut next = 0;
            for chunk in store.chunks(job, 0..total) {
                for subtask in chunk.unwrap().subtasks() {
                    assert_eq!(subtask.number(), next);
                    assert!(subtask.keys().eq(claims(&keys(job, next))));
                    assert_eq!(subtask.payload(), payload(job, next));
                    next += 1;
                }
            }
            assert_eq!(next, total);
            assert!(store.chunk(job, total).is_err());
        }
        assert!(store.job(JobNumber(1_000_000)).unwrap().is_none());
        let report = store.check().unwrap();
        assert_eq!((report.damage, report.jobs, report.subtasks), (vec![], 6, 7053));
    };
    look(&store);
    drop(store);
    // With nothing in memory.
    let none = StoreSettings { max_cache_bytes: 0, ..StoreSettings::default() };
    look(&open_with(&path, none).unwrap().0);
}

#[test]
fn what_has_not_ended_is_recovered_in_the_order_of_acceptance() {
    let (_folder, path) = place();
    let (store, recovered) = open(&path);
    assert!(recovered.was_clean() && recovered.is_empty());
    drop(recovered);
    let boot = store.boot();
    let late = upload(&store, 4);
    let first = accepted(&store, 2000);
    let second = accepted(&store, 3);
    let third = late.job();
    late.finish(new_job(third)).wait().unwrap();
    assert!(third < first);

    submit(&store, |changes| {
        changes.ended(first, outcome(0, OutcomeKind::Succeeded));
        changes.ended(first, outcome(1999, OutcomeKind::Failed));
        changes.started(SubtaskId { job: first, number: 1 }, 1);
        changes.started(SubtaskId { job: third, number: 2 }, 7);
    });
    submit(&store, |changes| {
        changes.started(SubtaskId { job: first, number: 1 }, 2);
        (0..3).for_each(|n| changes.ended(second, outcome(n, OutcomeKind::Succeeded)));
        let counts = OutcomeCounts { succeeded: 3, ..OutcomeCounts::default() };
        changes.status(second, over(JobState::Succeeded, counts));
        let paused =
            KeyRecord { state: KeyBlockReason::Paused, since_ms: NOW, reason: "why".into() };
        changes.key(Key::new("key 1"), Some(paused.clone()));
        changes.key(Key::new("key 2"), Some(paused));
    });
    submit(&store, |changes| changes.key(Key::new("key 2"), None));

    let look = |mut recovered: keylane_service::store::RecoveredJobs| {
        assert_eq!(recovered.keys().len(), 1);
        assert_eq!(recovered.keys()[0].0, Key::new("key 1"));
        let one = recovered.next_job().unwrap().unwrap();
        assert_eq!(one.job.number, first);
        let counts = OutcomeCounts { succeeded: 1, failed: 1, ..OutcomeCounts::default() };
        assert_eq!((one.counts(), one.waiting()), (counts, 1998));
        let expected: Vec<_> = (1..1999).map(|n| (n, if n == 1 { 2 } else { 0 })).collect();
        assert_eq!(waiting(&one), expected);
        let two = recovered.next_job().unwrap().unwrap();
        assert_eq!(two.job.number, third);
        assert_eq!(waiting(&two), [(0, 0), (1, 0), (2, 7), (3, 0)]);
        assert!(one.job.entered < two.job.entered);
        assert!(recovered.next_job().unwrap().is_none());
    };
    let (_copied, copy) = copy_as_is(&path);
    let (crashed, recovered) = open(&copy);
    assert!(!recovered.was_clean());
    assert!(crashed.boot() > boot);
    look(recovered);
    drop(store);
    let (store, recovered) = open(&path);
    assert!(recovered.was_clean());
    assert!(store.boot() > boot);
    look(recovered);
    // Numbers and places go on.
    let next = accepted(&store, 1);
    assert!(next > second);
    let entered = |job| store.job(job).unwrap().unwrap().entered;
    assert!(entered(next) > entered(third));
}

#[test]
fn outcomes_are_read_in_both_orders_and_page_by_page() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 3000);
    let order: Vec<u32> = (0..2500).map(|n| (n * 7) % 3000).collect();
    let kind = |n: u32| OutcomeKind::ALL[n as usize % 4];
    for part in order.chunks(1100) {
        submit(&store, |changes| {
            part.iter().for_each(|n| changes.ended(job, outcome(*n, kind(*n))));
        });
    }
    let mut place = None;
    let mut read = Vec::new();
    loop {
        let page = store.outcomes(job, place, 333).unwrap();
        let Some(last) = page.last() else { break };
        place = Some(last.place);
        read.extend(page.into_iter().map(|recorded| recorded.outcome));
    }
    assert!(read.iter().map(|one| one.number).eq(order.iter().copied()));
    // In the order in which they are asked for; those that it has not are not there.
    let asked = || (0..3100).map(|n| (n * 13) % 3100);
    let found = store.outcomes_of(job, asked()).unwrap();
    assert_eq!(found.len(), 3100);
    for (number, found) in asked().zip(found) {
        let expected = order.contains(&number).then(|| outcome(number, kind(number)));
        assert_eq!(found, expected);
    }
    // What comes later is seen.
    let missing = (0..3000).find(|n| !order.contains(n)).unwrap();
    submit(&store, |changes| changes.ended(job, outcome(missing, OutcomeKind::Failed)));
    let found = store.outcomes_of(job, missing..missing + 1).unwrap();
    assert_eq!(found, [Some(outcome(missing, OutcomeKind::Failed))]);
}

#[test]
fn a_subtask_that_was_reopened_waits_again() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 3);
    submit(&store, |changes| {
        changes.ended(job, outcome(0, OutcomeKind::Failed));
        changes.ended(job, outcome(1, OutcomeKind::Succeeded));
        changes.ended(job, outcome(2, OutcomeKind::Failed));
        let counts = OutcomeCounts { succeeded: 1, failed: 2, ..OutcomeCounts::default() };
        changes.status(job, over(JobState::Failed, counts));
    });
    let ended = store.submit({
        let mut changes = Changes::new();
        changes.ended(job, outcome(0, OutcomeKind::Succeeded));
        changes
    });
    assert_eq!(ended.wait(), Err(WriteError::Ended { job }));
    submit(&store, |changes| changes.reopen(job, [0, 2], NOW + 200, JobStatus::WAITING));
    submit(&store, |changes| changes.ended(job, outcome(2, OutcomeKind::Succeeded)));
    let look = |store: &Store| {
        let found = store.outcomes_of(job, 0..3).unwrap();
        let kinds: Vec<_> = found.iter().map(|one| one.as_ref().map(|one| one.kind)).collect();
        assert_eq!(kinds, [None, Some(OutcomeKind::Succeeded), Some(OutcomeKind::Succeeded)]);
        let all = store.outcomes(job, None, 99).unwrap();
        assert_eq!(all.len(), 6);
        let counting = store.that_count(job, all).unwrap();
        let numbers: Vec<_> = counting.iter().map(|one| one.outcome.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(store.check().unwrap().damage, []);
    };
    look(&store);
    drop(store);
    let (store, mut recovered) = open(&path);
    let one = recovered.next_job().unwrap().unwrap();
    assert_eq!(waiting(&one), [(0, 0)]);
    assert_eq!(one.counts(), OutcomeCounts { succeeded: 2, ..OutcomeCounts::default() });
    look(&store);
}

#[test]
fn jobs_are_listed_by_state_kind_and_what_the_caller_says() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let jobs: Vec<_> = (0..30).map(|_| accepted(&store, 1)).collect();
    let state = |i: usize| {
        [JobState::Waiting, JobState::Succeeded, JobState::Failed, JobState::Paused][i % 4]
    };
    for (i, job) in jobs.iter().enumerate() {
        submit(&store, |changes| {
            if state(i).is_final() {
                changes.ended(*job, outcome(0, OutcomeKind::Cancelled));
            }
            let counts = OutcomeCounts {
                cancelled: u32::from(state(i).is_final()),
                ..OutcomeCounts::default()
            };
            changes.status(*job, over(state(i), counts));
        });
    }
    let list = |filter: &JobFilter, most: usize| {
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let page = store.jobs(filter, before, most).unwrap();
            assert!(page.jobs.len() <= most);
            found.extend(page.jobs.into_iter().map(|job| job.number));
            before = page.next;
            if before.is_none() {
                return found;
            }
        }
    };
    let which = |wanted: &dyn Fn(usize) -> bool| -> Vec<_> {
        (0..30).rev().filter(|i| wanted(*i)).map(|i| jobs[i]).collect()
    };
    assert_eq!(list(&JobFilter::default(), 7), which(&|_| true));
    for states in [
        vec![JobState::Waiting],
        vec![JobState::Failed, JobState::Paused],
        vec![JobState::Succeeded, JobState::Paused],
        vec![JobState::Cancelled],
    ] {
        let filter = JobFilter { states: states.clone(), ..JobFilter::default() };
        assert_eq!(list(&filter, 4), which(&|i| states.contains(&state(i))));
    }
    let filter = JobFilter { kind: Some("kind 1".into()), ..JobFilter::default() };
    assert_eq!(list(&filter, 3), which(&|i| jobs[i].0 % 3 == 1));
    let ends_in_5: Arc<JobPredicate> = Arc::new(|job| job.head.ends_with(b"5>"));
    let filter = JobFilter { matches: Some(ends_in_5), ..JobFilter::default() };
    assert_eq!(list(&filter, 1), which(&|i| jobs[i].0 % 10 == 5));

    let ends = store.ends(0..u64::MAX / 2).unwrap();
    assert_eq!(ends.len(), 15);
    assert!(ends.iter().all(|job| job.ended_ms == NOW + 99));
    let [first, last] = [ends[4].number, ends[9].number];
    assert_eq!(store.ends(first.0..last.0).unwrap(), ends[4..9]);
    assert_eq!(store.first_job_from(jobs[3]).unwrap(), Some(jobs[3]));
    let beyond = JobNumber(jobs[29].0 + 1);
    assert_eq!(store.first_job_from(beyond).unwrap(), None);
}

#[test]
fn a_purged_job_is_gone_with_all_it_had() {
    let (_folder, path) = place();
    let store = new_store(&path);
    // More chunks than go at once.
    let large = accepted(&store, 200_000);
    let small = accepted(&store, 2);
    let stays = accepted(&store, 2);
    for job in [large, small] {
        let mut early = Changes::new();
        early.purge(job);
        assert_eq!(store.submit(early).wait(), Err(WriteError::NotEnded { job }));
        submit(&store, |changes| {
            changes.status(job, over(JobState::Cancelled, OutcomeCounts::default()));
        });
        submit(&store, |changes| changes.purge(job));
        assert!(store.job(job).unwrap().is_none());
        assert!(store.chunk(job, 0).is_err());
        let mut again = Changes::new();
        again.purge(job);
        assert_eq!(store.submit(again).wait(), Err(WriteError::NoSuchJob { job }));
    }
    // At once, as others see it; and when it is opened again, with what is still in the file.
    for _ in 0..2 {
        assert_eq!(store.check().unwrap().damage, []);
    }
    drop(store);
    let (store, mut recovered) = open(&path);
    assert_eq!(recovered.next_job().unwrap().unwrap().job.number, stays);
    assert_eq!(store.check().unwrap().damage, []);
    // Once it rests, nothing is left.
    wait_until_swept(&store);
    drop((store, recovered));
    assert_eq!(count_rows(&path, "chunk"), 0);
    assert_eq!(count_rows(&path, "loose"), 0);
}

/// Each transaction removes a part.
fn wait_until_swept(store: &Store) {
    while count_rows(store.path(), "loose") > 0 {
        submit(store, |_| ());
    }
}

/// Waits until the queued chunks are on the disk.
fn wait_until_written(store: &Store) {
    while store.stats().waiting > 0 {
        submit(store, |_| ());
    }
    // The writer took the last ones before this.
    submit(store, |_| ());
}

#[test]
fn a_subtask_is_refused_if_its_payload_and_its_keys_are_too_long() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let mut upload = store.upload(NOW).unwrap();
    let payload = vec![0; Store::MAX_SUBTASK_BYTES];
    let error = upload.push(&[b"k"], &payload).unwrap_err();
    assert!(matches!(error, WriteError::TooLarge { .. }), "{error}");
    assert_eq!(upload.push(&[b"k"], &payload[..1]), Ok(0));
}

#[test]
fn an_upload_that_is_not_finished_leaves_nothing() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let dropped = upload(&store, 300_000);
    let dropped_job = dropped.job();
    drop(dropped);
    let crashed = upload(&store, 20_000);
    // Flushed data are on the disk, and no reader sees them.
    wait_until_written(&store);
    assert!(store.job(crashed.job()).unwrap().is_none());
    assert!(store.job(dropped_job).unwrap().is_none());
    let (_copied, copy) = copy_as_is(&path);
    let (after, recovered) = open(&copy);
    assert!(recovered.is_empty());
    assert_eq!(after.check().unwrap().damage, []);
    wait_until_swept(&after);
    drop((after, recovered));
    for table in ["chunk", "loose", "job"] {
        assert_eq!(count_rows(&copy, table), 0, "{table}");
    }
    // Its number is not given again.
    let (after, _) = open(&copy);
    assert!(after.upload(NOW).unwrap().job() > crashed.job());
    // And where nothing crashed it can still be finished.
    let job = crashed.job();
    crashed.finish(new_job(job)).wait().unwrap();
    assert_eq!(store.job(job).unwrap().unwrap().total, 20_000);
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn an_idempotency_key_is_the_same_job() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let entry = |key: &str, hash: u8| IdempotencyEntry {
        scope: "ann".into(),
        key: key.into(),
        body_hash: [hash; 32],
        expires_ms: NOW + 1000,
    };
    let with = |total: u32, entry: IdempotencyEntry| {
        let upload = upload(&store, total);
        let (job, id) = (upload.job(), upload.id());
        let mut new = new_job(job);
        new.idempotency = Some(entry);
        (upload.finish(new), job, id)
    };
    // The second one of one transaction, perhaps, and certainly of a later one.
    let (first, job, id) = with(3, entry("a", 1));
    let (second, other, _) = with(3000, entry("a", 2));
    first.wait().unwrap();
    let duplicate = WriteError::Duplicate { job: id, body_hash: [1; 32] };
    assert_eq!(second.wait(), Err(duplicate.clone()));
    assert_eq!(with(1, entry("a", 1)).0.wait(), Err(duplicate));
    with(1, entry("b", 1)).0.wait().unwrap();
    assert!(store.job(other).unwrap().is_none());
    assert_eq!(store.idempotent("ann", "a").unwrap(), Some((entry("a", 1), id)));
    assert_eq!(store.idempotent("bob", "a").unwrap(), None);
    assert_eq!(store.check().unwrap().damage, []);

    submit(&store, |changes| changes.forget_idempotency(NOW + 999));
    assert!(store.idempotent("ann", "a").unwrap().is_some());
    submit(&store, |changes| changes.forget_idempotency(NOW + 1000));
    assert!(store.idempotent("ann", "a").unwrap().is_none());
    assert!(store.job(job).unwrap().is_some());
}

#[test]
fn what_cannot_be_is_refused_whole_and_keeps_nobody_out() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 2);
    let pending: Vec<_> = (0..30)
        .map(|i| {
            let mut changes = Changes::new();
            let key = Key::new(format!("{i}"));
            let record =
                KeyRecord { state: KeyBlockReason::Stopped, since_ms: i, reason: String::new() };
            changes.key(key, Some(record));
            match i % 3 {
                0 => changes.ended(job, outcome(2, OutcomeKind::Failed)),
                1 => changes.started(SubtaskId { job: JobNumber(777_777), number: 0 }, 1),
                _ => {}
            }
            store.submit(changes)
        })
        .collect();
    for (i, pending) in (0..).zip(pending) {
        let expected = match i % 3 {
            0 => Err(WriteError::NoSuchSubtask { job, number: 2, total: 2 }),
            1 => Err(WriteError::NoSuchJob { job: JobNumber(777_777) }),
            _ => Ok(()),
        };
        assert_eq!(pending.wait().map(drop), expected);
    }
    drop(store);
    let (_store, recovered) = open(&path);
    assert_eq!(recovered.keys().len(), 10);
}

#[test]
fn callbacks_come_in_the_order_of_the_commits_and_may_submit_more() {
    let (_folder, path) = place();
    // Room for very little, so that a callback that waited for room would wait for ever.
    let settings = StoreSettings { max_waiting_bytes: 2000, ..StoreSettings::default() };
    let (store, _) = open_with(&path, settings.clone()).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (done, all_done) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let upload = upload(&store, 3);
                    let (job, order, done) = (upload.job(), Arc::clone(&order), done.clone());
                    let inner = store.clone();
                    upload.finish_with(new_job(job), move |committed| {
                        let committed = committed.unwrap();
                        order.lock().unwrap().push((committed.entered.unwrap(), committed.commit));
                        // A job of its own from there, large enough to take more than all the room.
                        let more = crate::store_support::upload(&inner, 100);
                        let number = more.job();
                        more.finish_with(new_job(number), move |committed| {
                            done.send(committed.unwrap().entered.unwrap()).unwrap();
                        });
                    });
                }
            });
        }
    });
    drop(done);
    let mut from_inside: Vec<_> = all_done.iter().collect();
    assert!(from_inside.is_sorted());
    assert_eq!(from_inside.len(), 200);
    let order = order.lock().unwrap();
    assert!(order.is_sorted() && order.is_sorted_by_key(|(_, commit)| *commit));
    from_inside.extend(order.iter().map(|(accepted, _)| accepted));
    from_inside.sort_unstable();
    from_inside.dedup();
    assert_eq!(from_inside.len(), 400);
    drop(store);
    let (_store, mut recovered) = open(&path);
    let mut accepted = Vec::new();
    while let Some(job) = recovered.next_job().unwrap() {
        accepted.push(job.job.entered);
    }
    assert_eq!(accepted, from_inside);
}

#[test]
fn a_small_job_does_not_wait_for_the_chunks_of_a_large_one() {
    let (_folder, path) = place();
    let store = new_store(&path);
    // The writer waits in this callback until everything is in its queue.
    let (go_on, waits) = mpsc::channel::<()>();
    let (began, begins) = mpsc::channel();
    store.submit_with(Changes::new(), move |committed| {
        began.send(committed.unwrap().commit).unwrap();
        let _ = waits.recv();
    });
    let before = begins.recv().unwrap();

    let mut large = store.upload(NOW).unwrap();
    let large_number = large.job();
    while large.total() < 6 * 1024 {
        large.push(&["key"], &[1; 1024]).unwrap();
        if large.is_full() {
            large.flush().unwrap();
        }
    }
    let large = large.finish(new_job(large_number));
    let small = upload(&store, 1);
    let small_number = small.job();
    let small = small.finish(new_job(small_number));
    go_on.send(()).unwrap();

    assert_eq!(small.wait().unwrap().commit, before + 1, "it is in the first transaction");
    assert!(large.wait().unwrap().commit >= before + 6, "a MiB in a transaction");
    assert_eq!(store.check().unwrap().damage, []);
    assert_eq!(store.job(large_number).unwrap().unwrap().total, 6 * 1024);
}

#[test]
fn requests_are_answered_while_uploads_wait_for_a_checkpoint() {
    let (_folder, path) = place();
    let store = new_store(&path);
    // Enough for several checkpoints beside the writer.
    let mut large = store.upload(NOW).unwrap();
    let large_number = large.job();
    let mut small = Vec::new();
    while large.total() < 96 * 1024 {
        large.push(&["key"], &[1; 1024]).unwrap();
        if large.is_full() {
            large.flush().unwrap();
            small.push(accepted(&store, 1));
        }
    }
    large.finish(new_job(large_number)).wait().unwrap();
    assert_eq!(store.check().unwrap().damage, []);
    if is_in_file() {
        let log = std::fs::metadata(format!("{}-wal", path.display())).unwrap().len();
        assert!(log <= 64 << 20, "the log restarts: {log}");
    }
    drop(store);
    let (store, mut recovered) = open(&path);
    for expected in small {
        assert_eq!(recovered.next_job().unwrap().unwrap().job.number, expected);
    }
    assert_eq!(recovered.next_job().unwrap().unwrap().job.total, 96 * 1024);
    drop(recovered);
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn the_last_handle_can_be_dropped_by_a_callback() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let (told, hears) = mpsc::channel();
    let mut changes = Changes::new();
    changes.key(Key::new("a"), None);
    let kept = store.clone();
    store.submit_with(changes, move |committed| {
        drop(kept);
        told.send(committed.is_ok()).unwrap();
    });
    drop(store);
    assert_eq!(hears.recv(), Ok(true));
}

#[test]
fn a_wait_can_be_a_future() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let job = runtime.block_on(async {
        let mut upload = store.upload(NOW).unwrap();
        for number in 0..3000 {
            upload
                .push_claims(&claims(&keys(upload.job(), number)), &payload(upload.job(), number))
                .unwrap();
            if upload.is_full() {
                upload.flush_async().await.unwrap();
            }
        }
        let job = upload.job();
        upload.finish_async(new_job(job)).await.unwrap();
        let mut changes = Changes::new();
        changes.ended(job, outcome(5, OutcomeKind::Skipped));
        store.submit(changes).await.unwrap();
        job
    });
    assert_eq!(store.outcomes(job, None, 9).unwrap().len(), 1);
    assert_eq!(store.check().unwrap().subtasks, 3000);
}

#[test]
fn a_flush_that_is_given_up_loses_no_chunk() {
    let (_folder, path) = place();
    // Room for one chunk at most, and that is taken.
    let settings = StoreSettings { max_waiting_bytes: 2000, ..StoreSettings::default() };
    let (store, _) = open_with(&path, settings.clone()).unwrap();
    let mut upload = store.upload(NOW).unwrap();
    let job = upload.job();
    for number in 0..20_000 {
        upload.push_claims(&claims(&keys(job, number)), &payload(job, number)).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        // Each is polled once, and dropped wherever it is then.
        while upload.is_full() {
            let mut flush = std::pin::pin!(upload.flush_async());
            std::future::poll_fn(|context| {
                let _ = flush.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
            tokio::task::yield_now().await;
        }
        upload.finish_async(new_job(job)).await.unwrap();
    });
    assert_eq!(store.check().unwrap().damage, []);
    assert_eq!(store.job(job).unwrap().unwrap().total, 20_000);
}

#[test]
fn of_a_job_that_goes_on_again_no_attempt_has_begun() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let (job, other) = (accepted(&store, 2), accepted(&store, 1));
    // One transaction's marks, of which one is needed longer than the others.
    submit(&store, |changes| {
        changes.started(SubtaskId { job, number: 0 }, 5);
        changes.started(SubtaskId { job, number: 1 }, 5);
        changes.started(SubtaskId { job: other, number: 0 }, 2);
    });
    let failed = over(
        JobState::Failed,
        OutcomeCounts { failed: 1, cancelled: 1, ..OutcomeCounts::default() },
    );
    submit(&store, |changes| {
        changes.ended(job, outcome(0, OutcomeKind::Failed));
        changes.status(job, failed);
    });
    submit(&store, |changes| changes.reopen(job, [0], NOW, JobStatus::WAITING));
    let begun = |path| {
        let mut recovered = open(path).1;
        [other, job].map(|_| waiting(&recovered.next_job().unwrap().unwrap()))
    };
    let (_copied, copy) = copy_as_is(&path);
    assert_eq!(begun(&copy), [vec![(0, 2)], vec![(0, 0), (1, 0)]]);
    // The marks that come later are right beside what was written anew.
    submit(&store, |changes| {
        changes.started(SubtaskId { job, number: 0 }, 1);
        changes.started(SubtaskId { job: other, number: 0 }, 3);
    });
    drop(store);
    assert_eq!(begun(&path), [vec![(0, 3)], vec![(0, 1), (1, 0)]]);
}
