//! With the feature `tracing` a subscriber receives every task, and the events of the pool.

#[path = "it/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Gate, Log, OpenAtLast, eventually, soon};
use keylane::Pool;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Records all spans and events with their fields.
struct Listener {
    log: Log<(String, BTreeMap<String, String>)>,
    spans: AtomicU64,
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "keylane"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.log.push((format!("span {}", span.metadata().name()), fields.0));
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap();
        self.log.push((format!("{} {message}", event.metadata().level()), fields.0));
    }

    fn enter(&self, _: &Id) {
        self.log.push(("enter".to_owned(), BTreeMap::new()));
    }

    fn exit(&self, _: &Id) {
        self.log.push(("exit".to_owned(), BTreeMap::new()));
    }
}

/// One test for all: the subscriber is the process's.
#[test]
fn a_subscriber_is_told_of_tasks_their_ends_stalls_and_changes() {
    soon(|| {
        let log = Log::new();
        let listener = Listener { log: log.clone(), spans: AtomicU64::new(0) };
        tracing::subscriber::set_global_default(listener).unwrap();
        let pool = Pool::<u64>::builder().workers(1).thread_name("orders").build().unwrap();
        let pool = Arc::new(pool);
        pool.submit(7, || {}).unwrap().wait().unwrap().unwrap();
        eventually(|| !pool.inspect().snapshot(0).workers[0].busy);
        let told = log.take();
        let what: Vec<_> = told.iter().map(|(what, _)| what.as_str()).collect();
        assert_eq!(what, ["span task", "enter", "exit"]);
        assert_eq!(told[0].1["pool"], "\"orders\"");
        assert_eq!((told[0].1["worker"].as_str(), told[0].1["place"].as_str()), ("0", "1"));

        pool.task(7).fallible().submit(|| Err::<(), _>(())).unwrap().wait().unwrap();
        pool.submit(7, || std::panic::resume_unwind(Box::new("quietly"))).unwrap().wait().unwrap();
        eventually(|| !pool.inspect().snapshot(0).workers[0].busy);
        let told = log.take();
        let events: Vec<_> = told.iter().filter(|(what, _)| what.contains(' ')).collect();
        let what: Vec<_> = events.iter().map(|(what, _)| what.as_str()).collect();
        let failed = "DEBUG a task has failed or was cancelled";
        assert_eq!(what, ["span task", failed, "span task", "WARN a task has panicked"]);
        assert_eq!(events[1].1["outcome"], "\"failed\"");

        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let watch = pool.inspect().watch_stalls(Duration::from_millis(5), |_| {}).unwrap();
        let wait = gate.clone();
        pool.execute(8, move || wait.pass()).unwrap();
        let mut told = Vec::new();
        let is_stall =
            |(what, _): &&(String, _)| what == "WARN a task has held its keys for a long time";
        eventually(|| {
            told.extend(log.take());
            told.iter().any(|it| is_stall(&it))
        });
        gate.open();
        let (_, fields) = told.iter().find(is_stall).unwrap();
        assert_eq!(fields["thread"], "\"orders-0\"");
        drop(watch);

        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        eventually(|| !pool.inspect().snapshot(0).workers[0].busy);
        log.take();
        pool.settings().set_capacity(99).unwrap();
        pool.settings().set_workers(1).unwrap();
        pool.close();
        pool.close();
        assert!(pool.shutdown_now().is_empty());
        let what: Vec<_> = log.take().into_iter().map(|(what, _)| what).collect();
        let changes = [
            "INFO the capacity was changed",
            "INFO the number of workers was changed",
            "INFO closed",
            "INFO stopped",
        ];
        assert_eq!(what, changes);
    });
}
