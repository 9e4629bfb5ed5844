//! A trace shows what ran, in a form that viewers read: the Trace Event Format.

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{Gate, OpenAtLast, eventually, soon, with_turns};
use keylane::observe::{Statistics, Trace, TraceOutcome};
use keylane::{Claims, Pool};
use serde_json::Value;

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

/// Workers take part from their next slice on: waits until each does.
fn joined(pool: &Pool<u64>, workers: usize) {
    let mut seen = BTreeSet::new();
    eventually(|| {
        pool.inspect().start_trace(100_000);
        let both = Gate::new();
        let tasks: Vec<_> = (0..workers)
            .map(|_| {
                let (both, wait) = (both.clone(), both.clone());
                let begun = Gate::new();
                let begin = begun.clone();
                let body = move || {
                    begin.open();
                    wait.pass();
                };
                let task = pool.submit(Claims::none(), body).unwrap();
                (task, begun, both)
            })
            .collect();
        tasks.iter().for_each(|(_, begun, _)| begun.pass());
        both.open();
        tasks.into_iter().for_each(|(task, ..)| task.wait().unwrap().unwrap());
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        let trace = pool.inspect().take_trace().unwrap();
        seen.extend(trace.slices.iter().filter_map(|slice| slice.worker));
        seen.len() == workers
    });
    // A worker that searches for its next task joins before it begins that.
    eventually(|| pool.inspect().snapshot(0).workers.iter().all(|worker| !worker.busy));
}

fn json<K: std::hash::Hash + Eq + std::fmt::Debug>(trace: &Trace<K>) -> Vec<Value> {
    let mut text = Vec::new();
    trace.write_chrome(&mut text).unwrap();
    let root: Value = serde_json::from_slice(&text).unwrap();
    assert!(["ms", "ns"].contains(&root["displayTimeUnit"].as_str().unwrap()));
    check(root["traceEvents"].as_array().unwrap());
    root["traceEvents"].as_array().unwrap().clone()
}

/// Checks each event against the requirements of the format.
fn check(events: &[Value]) {
    let mut last: HashMap<u64, (f64, f64)> = HashMap::new();
    let mut slices: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
    let mut named = BTreeSet::new();
    let mut flows: HashMap<u64, Vec<(String, u64, f64)>> = HashMap::new();
    let mut turns: HashMap<u64, Vec<(String, f64)>> = HashMap::new();
    for event in events {
        let phase = event["ph"].as_str().unwrap();
        assert!(event["name"].is_string(), "{event}");
        assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        let tid = event["tid"].as_u64().unwrap();
        if phase == "M" {
            assert!(
                ["thread_name", "thread_sort_index"].contains(&event["name"].as_str().unwrap())
            );
            assert!(event["args"].is_object());
            named.insert(tid);
            continue;
        }
        let ts = event["ts"].as_f64().unwrap();
        assert!(ts >= 0.0 && event["cat"].is_string(), "{event}");
        match phase {
            "X" => {
                let dur = event["dur"].as_f64().unwrap();
                assert!(dur >= 0.0 && event["cname"].is_string() && event["args"].is_object());
                // A worker runs one task at a time, and its track has them in order.
                if let Some((before, took)) = last.insert(tid, (ts, dur)) {
                    assert!(ts >= before + took - 0.0005, "{event} begins before {before}+{took}");
                }
                slices.entry(tid).or_default().push((ts, ts + dur));
            }
            "s" | "f" => {
                if phase == "f" {
                    assert_eq!(event["bp"], "e");
                }
                let flow = flows.entry(event["id"].as_u64().unwrap()).or_default();
                flow.push((phase.to_owned(), tid, ts));
            }
            "b" | "e" => {
                let turn = turns.entry(event["id"].as_u64().unwrap()).or_default();
                turn.push((phase.to_owned(), ts));
            }
            other => panic!("no such phase is written: {other}"),
        }
    }
    assert!(last.keys().all(|tid| named.contains(tid)), "every track has a name");
    for (id, flow) in flows {
        let [(from, from_tid, from_ts), (to, to_tid, to_ts)] = &flow[..] else {
            panic!("flow {id} is no pair: {flow:?}")
        };
        assert_eq!((from.as_str(), to.as_str()), ("s", "f"));
        assert!(from_ts <= to_ts, "flow {id} leads back in time");
        for (tid, ts) in [(from_tid, from_ts), (to_tid, to_ts)] {
            let encloses = |&(start, end): &(f64, f64)| start <= *ts && *ts <= end;
            assert!(slices[tid].iter().any(encloses), "flow {id} has no slice on track {tid}");
        }
    }
    for (id, turn) in turns {
        let phases: Vec<_> = turn.iter().map(|(phase, _)| phase.as_str()).collect();
        assert_eq!(phases, ["b", "e"], "turn {id}");
        assert!(turn[0].1 <= turn[1].1);
    }
}

#[test]
fn every_task_of_the_window_is_a_slice_with_its_key_and_time() {
    soon(|| {
        for statistics in [Statistics::Sampled, Statistics::Off] {
            let pool = Pool::<u64>::builder().workers(2).statistics(statistics).build().unwrap();
            joined(&pool, 2);
            // The trace counts from when it is begun.
            let start = Instant::now();
            pool.inspect().start_trace(10_000);
            for task in 0..100 {
                let body = || spin(Duration::from_micros(200));
                pool.submit(task % 5, body).unwrap().wait().unwrap().unwrap();
            }
            eventually(|| pool.inspect().snapshot(0).unfinished == 0);
            // The end of the last one is recorded after its handle has completed.
            pool.submit(99, || {}).unwrap().wait().unwrap().unwrap();
            eventually(|| pool.inspect().snapshot(0).workers.iter().all(|worker| !worker.busy));
            let trace = pool.inspect().take_trace().unwrap();
            let window = start.elapsed();
            let of_ours = |key: u64| {
                let is_it = |slice: &&keylane::observe::TraceSlice<u64>| {
                    slice.keys.iter().any(|it| it.key == key)
                };
                trace.slices.iter().filter(is_it).count()
            };
            assert_eq!((0..5).map(of_ours).collect::<Vec<_>>(), [20; 5], "{statistics:?}");
            for slice in trace.slices.iter().filter(|slice| slice.keys[0].key < 5) {
                assert!(slice.duration >= Duration::from_micros(200), "{slice:?}");
                assert!(slice.end_time() <= window && matches!(slice.end, TraceOutcome::Done));
                assert!(slice.wait.is_some_and(|wait| wait <= window), "{slice:?}");
                assert!(slice.task.is_some() && !slice.keys[0].is_shared);
            }
            let tasks: BTreeSet<_> = trace.slices.iter().map(|slice| slice.task).collect();
            assert_eq!(tasks.len(), trace.slices.len(), "no two tasks have one name");
            json(&trace);
            assert!(pool.inspect().take_trace().is_none());
        }
    });
}

#[test]
fn arrows_lead_along_a_lane_and_from_a_rollup_s_predecessors() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(2).build().unwrap();
        joined(&pool, 2);
        pool.inspect().start_trace(1000);
        let work = || spin(Duration::from_micros(50));
        pool.execute(1, work).unwrap();
        pool.execute(2, work).unwrap();
        pool.execute([1, 2], work).unwrap();
        pool.execute(Claims::shared(1), work).unwrap();
        pool.execute(Claims::shared(1), work).unwrap();
        pool.execute(1, work).unwrap();
        pool.execute(Claims::barrier(), work).unwrap();
        pool.execute(3, work).unwrap();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        eventually(|| pool.inspect().snapshot(0).workers.iter().all(|worker| !worker.busy));
        let trace = pool.inspect().take_trace().unwrap();
        assert_eq!(trace.slices.len(), 8, "{trace:?}");
        let events = json(&trace);
        let arrows = events.iter().filter(|event| event["ph"] == "s").count();
        // 1 and 2 to the rollup; the rollup to two readers; both to the writer; that to the
        // barrier, and the barrier to the tasks after it.
        assert_eq!(arrows, 2 + 2 + 2 + 1 + 1);
        let names: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert!(names.iter().any(|event| event["name"] == "1 + 2"));
        assert!(names.iter().any(|event| event["name"] == "barrier"));
        let colours = |name: &str| -> BTreeSet<String> {
            let its = names.iter().filter(|event| event["name"] == name);
            its.map(|event| event["cname"].to_string()).collect()
        };
        assert_eq!(colours("1").len(), 1, "a key keeps its colour");
    });
}

#[test]
fn how_a_task_ended_is_told() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(1).build().unwrap();
        joined(&pool, 1);
        pool.inspect().start_trace(1000);
        pool.task(1).fallible().submit(|| Err::<(), _>(())).unwrap().wait().unwrap();
        pool.submit(2, || std::panic::resume_unwind(Box::new("quietly"))).unwrap().wait().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let wait = gate.clone();
        pool.execute(3, move || wait.pass()).unwrap();
        let cancelled = pool.submit(3, || ()).unwrap();
        assert!(cancelled.cancel());
        gate.open();
        pool.submit(4, || ()).unwrap().wait().unwrap().unwrap();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        eventually(|| !pool.inspect().snapshot(0).workers[0].busy);
        let trace = pool.inspect().take_trace().unwrap();
        let mut ends: Vec<_> =
            trace.slices.iter().map(|slice| (slice.keys[0].key, slice.end.name())).collect();
        ends.sort_unstable();
        let told = [(1, "failed"), (2, "panicked"), (3, "cancelled"), (3, "done"), (4, "done")];
        assert_eq!(ends, told);
        json(&trace);
    });
}

#[test]
fn a_full_ring_keeps_the_last_and_counts_the_others() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(1).build().unwrap();
        joined(&pool, 1);
        pool.inspect().start_trace(10);
        for task in 0..100 {
            pool.submit(task, || {}).unwrap().wait().unwrap().unwrap();
        }
        eventually(|| !pool.inspect().snapshot(0).workers[0].busy);
        let trace = pool.inspect().take_trace().unwrap();
        assert_eq!((trace.slices.len(), trace.dropped), (10, 90));
        let keys: Vec<_> = trace.slices.iter().map(|slice| slice.keys[0].key).collect();
        assert_eq!(keys, (90..100).collect::<Vec<_>>());
    });
}

#[test]
fn a_kept_turn_and_a_job_s_subtasks_are_in_it() {
    soon(|| {
        let (send, turns) = mpsc::channel();
        let send = std::sync::Mutex::new(send);
        let pool = Pool::<u64>::builder().workers(1);
        let pool = pool.build_handler(with_turns(move |_, _: (), turn| {
            send.lock().unwrap().send(turn).unwrap();
        }));
        let pool = pool.unwrap();
        pool.inspect().start_trace(1000);
        pool.send(7, ()).unwrap();
        let turn = turns.recv().unwrap();
        // A turn that its worker still has would end there.
        eventually(|| pool.inspect().snapshot(0).finished == 1);
        let kept = Instant::now();
        spin(Duration::from_millis(2));
        let lasted = kept.elapsed();
        drop(turn);
        let trace = pool.inspect().take_trace().unwrap();
        let turn = trace.slices.iter().find(|slice| slice.worker.is_none()).unwrap();
        assert!(turn.duration >= lasted && turn.keys[0].key == 7);
        json(&trace);

        let pool = Pool::<u64>::builder().workers(1).build().unwrap();
        joined(&pool, 1);
        pool.inspect().start_trace(1000);
        let job = pool.job("squares").each((0..50_u64).map(|n| move || n * n)).collect().unwrap();
        job.wait().unwrap().unwrap();
        eventually(|| !pool.inspect().snapshot(0).workers[0].busy);
        let trace = pool.inspect().take_trace().unwrap();
        let of_job =
            |slice: &&keylane::observe::TraceSlice<u64>| slice.job.as_deref() == Some("squares");
        // The worker takes part from its next slice on.
        assert!(trace.slices.iter().filter(of_job).count() >= 40, "{trace:?}");
        json(&trace);
    });
}

#[test]
fn a_trace_can_be_taken_while_everything_goes_on() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(4).capacity(1000).build().unwrap();
        let records = Gate::new();
        std::thread::scope(|scope| {
            let tracer = scope.spawn(|| {
                let mut slices = 0;
                while pool.inspect().snapshot(0).finished < 100_000 {
                    pool.inspect().start_trace(500);
                    records.open();
                    let before = pool.inspect().snapshot(0).finished;
                    eventually(|| {
                        let now = pool.inspect().snapshot(0).finished;
                        now > before + 100 || now >= 100_000
                    });
                    let trace = pool.inspect().take_trace().unwrap();
                    slices += trace.slices.len();
                    json(&trace);
                }
                slices
            });
            // Otherwise all could be over before it has begun.
            records.pass();
            for task in 0..100_000_u64 {
                match task % 64 {
                    0 => pool.execute([task % 7, task % 5], || {}).unwrap(),
                    1 => pool.execute(Claims::shared(3), || {}).unwrap(),
                    _ => pool.execute(task % 100, || {}).unwrap(),
                }
            }
            assert!(tracer.join().unwrap() > 0);
        });
        pool.shutdown().unwrap();
    });
}
