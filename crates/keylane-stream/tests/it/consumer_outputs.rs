//! Output of handlers: it is written before its record is complete, in order per key; and the
//! handling of a sink that refuses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::consuming::{Dice, Door, Watched, eventually, keyed, number, partition_status, quick};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder, Outbox};
use keylane_stream::journal::{Journal, JournalSource};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::sink::{JournalSink, Sink, SinkError};
use keylane_stream::{Position, Record};

fn builder(stream: &MemoryStream, attempts: u32) -> ConsumerBuilder {
    let policy = RetryPolicy::new(quick(attempts, OnExhausted::Skip)).unwrap();
    Consumer::builder(stream.source()).threads(3).retry(policy, |_| ())
}

fn stream(records: impl IntoIterator<Item = (u64, u64)>) -> MemoryStream {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, records.into_iter().map(|(key, number)| keyed(key, number)));
    stream.exhaust();
    stream
}

/// Returns a copy of the record, with its number as text.
fn output(attempt: &Attempt) -> Record {
    let payload = number(attempt).to_string().into_bytes();
    let key = attempt.record().key.clone();
    Record { key, payload: Some(payload.into()), headers: attempt.origin() }
}

fn text(record: &Record) -> String {
    String::from_utf8(record.payload().to_vec()).unwrap()
}

/// Sink made of a function, which also keeps the written records.
struct Made<F> {
    refuses: F,
    written: Arc<Watched<Vec<String>>>,
}

impl<F: FnMut(&[Record]) -> bool + Send> Sink for Made<F> {
    fn put(&mut self, records: &[Record]) -> Result<(), SinkError> {
        assert!(!records.is_empty());
        if (self.refuses)(records) {
            return Err(SinkError::new("no"));
        }
        self.written.change(|written| written.extend(records.iter().map(text)));
        Ok(())
    }
}

#[test]
fn the_output_of_a_key_is_in_the_order_of_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("out")).unwrap();
    let mut dice = Dice(5);
    let records: Vec<_> = (0..2_000).map(|number| (dice.roll_skewed(40), number)).collect();
    let stream = stream(records.clone());
    let sink = JournalSink::new(journal.clone());
    // Some attempts fail, and each record yields up to three outputs.
    let consumer = builder(&stream, 99).start_producing(sink, |attempt: &Attempt| {
        let number = number(attempt);
        match attempt.number() {
            1 if number.is_multiple_of(7) => Err(AttemptFailure::from("not the first time")),
            _ => Ok(vec![output(attempt); number as usize % 4]),
        }
    });
    assert_eq!(consumer.unwrap().wait().counts.handled, 2_000);
    let mut written: HashMap<_, Vec<_>> = HashMap::new();
    let mut from = Position::default();
    while from < journal.end() {
        for delivered in journal.read(from, 500).unwrap() {
            let record = delivered.record;
            let origin = [("keylane-stream", "t"), ("keylane-partition", "0")];
            for ((name, value), (wanted, text)) in record.headers.iter().zip(origin) {
                assert_eq!((name.as_str(), value.as_deref()), (wanted, Some(text.as_bytes())));
            }
            assert_eq!(record.headers[2].0, "keylane-position");
            written.entry(record.key.clone()).or_default().push(text(&record));
            from = Position::new(delivered.position.get() + 1);
        }
    }
    let mut expected: HashMap<_, Vec<_>> = HashMap::new();
    for (key, number) in records {
        let texts = vec![number.to_string(); number as usize % 4];
        expected.entry(keyed(key, number).key).or_default().extend(texts);
    }
    expected.retain(|_, texts| !texts.is_empty());
    assert_eq!(written, expected);
}

#[test]
fn a_record_is_done_and_its_key_goes_on_when_the_output_is_written() {
    let stream = stream([(1, 0), (1, 1), (2, 2)]);
    let (door, written, begun) = (Door::closed(), Watched::new(vec![]), Watched::new(vec![]));
    let (opened, begins, entered) = (door.clone(), begun.clone(), Watched::new(false));
    let enter = entered.clone();
    let refuses = move |_: &[Record]| {
        enter.change(|entered| *entered = true);
        opened.pass();
        false
    };
    let sink = Made { refuses, written: written.clone() };
    let consumer = builder(&stream, 1).start_producing(sink, move |attempt: &Attempt| {
        begins.change(|begun| begun.push(number(attempt)));
        Ok::<_, AttemptFailure>(vec![output(attempt)])
    });
    let consumer = consumer.unwrap();
    begun.until(|begun| begun.len() == 2);
    entered.until(|entered| *entered);
    // The threads are free, and the key is not.
    let mut first = begun.get();
    first.sort_unstable();
    assert_eq!(first, [0, 2]);
    let stands = partition_status(&consumer, 0);
    assert_eq!((stands.in_flight, stands.watermark), (3, Position::new(0)));
    door.open();
    assert_eq!(consumer.wait().counts.handled, 3);
    assert_eq!((begun.get()[2], written.get().len()), (1, 3));
}

#[test]
fn an_output_that_is_refused_fails_its_record_and_no_other() {
    let stream = stream((0..20).map(|number| (number, number)));
    let written = Watched::new(vec![]);
    let refuses = |records: &[Record]| records.iter().any(|record| record.payload() == b"4");
    let sink = Made { refuses, written: written.clone() };
    let attempts = Watched::new(0);
    let (tries, classes) = (attempts.clone(), Watched::new(vec![]));
    let seen = classes.clone();
    let policy = RetryPolicy::new(quick(3, OnExhausted::Skip)).unwrap();
    let builder = builder(&stream, 3).retry(policy, move |failure: &AttemptFailure| {
        let ours = failure.downcast_ref::<SinkError>().is_some();
        seen.change(|seen| seen.push((ours, failure.to_string())));
    });
    let consumer = builder.start_producing(sink, move |attempt: &Attempt| {
        tries.change(|tries| *tries += usize::from(number(attempt) == 4));
        Ok::<_, AttemptFailure>(vec![output(attempt)])
    });
    let counts = consumer.unwrap().wait().counts;
    assert_eq!((counts.handled, counts.skipped), (19, 1));
    assert_eq!(attempts.get(), 3);
    let why = (true, "the output of the record was not written: no".to_owned());
    assert_eq!(classes.get(), vec![why; 3]);
    let mut written = written.get();
    written.sort_unstable();
    written.dedup();
    assert_eq!(written.len(), 19);
}

#[test]
fn a_sink_that_panics_has_refused() {
    let stream = stream([(1, 1), (1, 2)]);
    let mut calls = 0;
    let refuses = move |_: &[Record]| {
        calls += 1;
        assert_ne!(calls, 1, "the first time");
        false
    };
    let sink = Made { refuses, written: Watched::new(vec![]) };
    let consumer = builder(&stream, 2)
        .start_producing(sink, |attempt: &Attempt| Ok::<_, AttemptFailure>(vec![output(attempt)]));
    let counts = consumer.unwrap().wait().counts;
    assert_eq!((counts.handled, counts.failed_attempts), (2, 1));
}

#[test]
fn output_of_abandoned_records_is_not_written() {
    let stream = stream([(1, 1), (2, 2)]);
    let (door, written) = (Door::closed(), Watched::new(vec![]));
    let (entered, opened, enters) = (Watched::new(false), door.clone(), Watched::new(0));
    let (enter, sent) = (entered.clone(), enters.clone());
    let refuses = move |_: &[Record]| {
        enter.change(|entered| *entered = true);
        opened.pass();
        false
    };
    let sink = Made { refuses, written: written.clone() };
    let outbox = Outbox::start(sink).unwrap();
    let sends = outbox.clone();
    let consumer = builder(&stream, 1).threads(1).start_with_acks(move |attempt, ack| {
        let records = vec![output(&attempt)];
        if enters.get() == 1 {
            // The first output is being written.
            entered.until(|entered| *entered);
        }
        sends.send(records, ack);
        enters.change(|enters| *enters += 1);
    });
    let consumer = consumer.unwrap();
    sent.until(|sent| *sent == 2);
    consumer.handle().stop(Duration::ZERO);
    assert_eq!(consumer.wait().abandoned, 2);
    door.open();
    drop(outbox);
    // The consumer drops the other handle, and then the writer of its sink.
    eventually(|| Arc::strong_count(&written) == 1);
    assert_eq!(written.get().len(), 1);
}

#[test]
fn a_journal_is_free_when_the_consumer_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let orders = Journal::open(folder.path().join("in")).unwrap();
    orders.append_all(&vec![Record::new("k", "x"); 50]).unwrap();
    for round in 1..=3 {
        let sink = JournalSink::new(Journal::open(&path).unwrap());
        let source = JournalSource::new(orders.clone(), format!("g{round}").as_str()).to_the_end();
        let consumer = Consumer::builder(source).start_producing(sink, |it: &Attempt| {
            Ok::<_, AttemptFailure>(vec![it.record().clone()])
        });
        assert_eq!(consumer.unwrap().wait().counts.handled, 50);
        assert_eq!(Journal::open(&path).unwrap().end().get(), 50 * round);
    }
}

#[cfg(feature = "tokio")]
#[test]
fn futures_return_records_too() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let stream = stream((0..200).map(|number| (number % 20, number)));
    let written = Watched::new(vec![]);
    let sink = Made { refuses: |_: &[Record]| false, written: written.clone() };
    let builder = builder(&stream, 2);
    let produces = |attempt: Attempt| async move {
        tokio::task::yield_now().await;
        match (number(&attempt), attempt.number()) {
            (5, 1) => Err(AttemptFailure::from("not yet")),
            (6, _) => Ok(vec![]),
            _ => Ok(vec![output(&attempt)]),
        }
    };
    let consumer = builder.start_async_producing(runtime.handle().clone(), 16, sink, produces);
    assert_eq!(consumer.unwrap().wait().counts.handled, 200);
    assert_eq!(written.get().len(), 199);
}
