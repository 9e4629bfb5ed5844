//! The tracker agrees with a slow and simple model, through gaps, restarts and lost records; and
//! its map always fits.

use std::collections::BTreeSet;

use keylane_stream::Position;
use keylane_stream::tracker::{
    OffsetMapLimit, OffsetMapPolicy, Progress, TakeOutcome, Tracker, decode,
};
use proptest::prelude::*;

const STREAM: &[u8] = b"a topic, partition 1";

#[derive(Clone, Debug)]
enum Step {
    /// The source delivers the position at this distance from the last one; all between are gaps.
    Deliver(u64),
    /// Completes one of the positions in flight.
    Complete(prop::sample::Index),
    /// The position of the source rises, without a record.
    Skip(u64),
    /// The process ends and resumes from the progress that it would have committed just before.
    Restart,
    /// As `Restart`, after which the stream has lost some incomplete records.
    RestartWithLoss(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop_oneof![4 => Just(1u64), 1 => 1u64..200].prop_map(Step::Deliver),
        8 => any::<prop::sample::Index>().prop_map(Step::Complete),
        1 => (0u64..30).prop_map(Step::Skip),
        1 => Just(Step::Restart),
        1 => any::<u8>().prop_map(Step::RestartWithLoss),
    ]
}

/// Model of the stream and the tracker, position by position.
#[derive(Default)]
struct Model {
    /// All records of the stream.
    records: BTreeSet<u64>,
    done: BTreeSet<u64>,
    /// All positions below it have been delivered in this life, or are gaps.
    next: u64,
    in_flight: BTreeSet<u64>,
}

impl Model {
    /// Returns the lowest incomplete record; if all are complete, the end of the known positions.
    fn watermark(&self, known: u64) -> u64 {
        self.records.difference(&self.done).next().copied().unwrap_or(known)
    }
}

fn at(number: u64) -> Position {
    Position::new(number)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn says_what_the_model_says(steps in prop::collection::vec(step(), 0..250)) {
        let limit = OffsetMapLimit::characters(OffsetMapLimit::MIN_CHARACTERS).unwrap();
        let mut model = Model::default();
        let mut tracker = Tracker::new(Position::ZERO, limit);
        // Highest end that the source has reached in any life.
        let mut known = 0;
        for step in steps {
            match step {
                Step::Deliver(further) => {
                    let position = model.next + further - 1;
                    // Below the known end, the source delivers the existing records.
                    let position = model.records.range(model.next..).next().copied()
                        .unwrap_or(position.max(known));
                    if !tracker.may_take(at(position)) {
                        prop_assert!(!model.in_flight.is_empty(), "held back for ever");
                        continue;
                    }
                    model.records.insert(position);
                    let expected = if model.done.contains(&position) { TakeOutcome::Done } else { TakeOutcome::New };
                    prop_assert_eq!(tracker.take(at(position)), expected);
                    if expected == TakeOutcome::New {
                        model.in_flight.insert(position);
                        prop_assert_eq!(tracker.take(at(position)), TakeOutcome::InFlight);
                    }
                    model.next = position + 1;
                    known = known.max(model.next);
                }
                Step::Complete(which) => {
                    if model.in_flight.is_empty() { continue }
                    let position = *which.get(&model.in_flight.iter().collect::<Vec<_>>());
                    let position = *position;
                    model.in_flight.remove(&position);
                    model.done.insert(position);
                    prop_assert!(tracker.complete(at(position)).is_ok());
                    prop_assert!(tracker.complete(at(position)).is_err());
                    prop_assert_eq!(tracker.take(at(position)), TakeOutcome::Done);
                }
                Step::Skip(further) => {
                    // Skips only ranges without records.
                    if model.records.range(model.next..).next().is_some() { continue }
                    model.next += further;
                    known = known.max(model.next);
                    tracker.skip_to(at(model.next));
                }
                Step::Restart | Step::RestartWithLoss(_) => {
                    let progress = tracker.progress();
                    let text = progress.encode(STREAM);
                    let read = decode(progress.watermark(), &text, STREAM, OffsetMapPolicy::default()).unwrap();
                    prop_assert_eq!(&read.into_progress(), &progress);
                    tracker = Tracker::resume(&progress, limit);
                    model.next = progress.watermark().get();
                    model.in_flight.clear();
                    if let Step::RestartWithLoss(seed) = step {
                        let Model { records, done, .. } = &mut model;
                        // Never the last record, which shows that the others are missing.
                        let last = records.last().copied();
                        records.retain(|record| done.contains(record) || Some(*record) == last
                            || !(record ^ u64::from(seed)).is_multiple_of(3));
                    }
                    // Positions above the end of the commit are unknown again.
                    known = progress.end().get().max(model.records.last().map_or(0, |last| last + 1));
                }
            }
            prop_assert!(tracker.progress().encode(STREAM).len() <= limit.get());
            let progress = tracker.progress();
            for record in &model.records {
                prop_assert!(!progress.is_done(at(*record)) || model.done.contains(record));
                let unseen = *record >= progress.end().get();
                prop_assert!(unseen || progress.is_done(at(*record)) == model.done.contains(record));
            }
            let exact = model.watermark(model.next.max(progress.end().get()));
            prop_assert!(progress.watermark().get() <= exact);
            // A removed record holds the watermark only until the source has passed it.
            let passed = model.records.range(..model.next).chain(model.records.range(model.next..).take(1));
            if passed.clone().all(|record| model.next > *record) {
                prop_assert_eq!(progress.watermark().get(), exact);
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_repeated_and_never_lost(
        start in 0u64..1 << 40,
        gaps in prop::collection::vec(prop_oneof![3 => 1u64..4, 1 => 1u64..5000], 1..800),
        done_above in 1u64..5,
        characters in OffsetMapLimit::MIN_CHARACTERS..2000,
    ) {
        let incomplete = gaps.iter().scan(start, |last, gap| { *last += gap; Some(at(*last)) });
        let incomplete: Vec<_> = incomplete.collect();
        let end = incomplete.last().unwrap().after(1 + done_above).unwrap();
        let whole = Progress::with_map(at(start), end, incomplete);
        let limit = OffsetMapLimit::characters(characters).unwrap();
        let short = whole.shortened(limit);
        prop_assert!(short.encode(STREAM).len() <= characters);
        prop_assert_eq!(short.watermark(), whole.watermark());
        prop_assert!(short.end() <= whole.end());
        for number in (start..end.get()).step_by(7).chain(whole.incomplete().iter().map(|p| p.get())) {
            prop_assert!(!short.is_done(at(number)) || whole.is_done(at(number)));
            let kept = number < short.end().get();
            prop_assert!(!kept || short.is_done(at(number)) == whole.is_done(at(number)));
        }
        // Progress that fits in either version is kept.
        if whole.encode_with_epoch(STREAM, u32::MAX).len() <= characters {
            prop_assert_eq!(short, whole);
        }
    }
}

#[test]
fn gaps_do_not_hold_the_watermark() {
    let mut tracker = Tracker::new(at(10), OffsetMapLimit::KAFKA);
    for position in [10, 13, 20] {
        assert_eq!(tracker.take(at(position)), TakeOutcome::New);
    }
    assert_eq!(tracker.complete(at(13)), Ok(false));
    assert_eq!(tracker.complete(at(10)), Ok(true));
    assert_eq!(tracker.watermark(), at(20));
    tracker.complete(at(20)).unwrap();
    assert_eq!(tracker.watermark(), at(21));
    // The markers of a transaction end the stream for now.
    tracker.skip_to(at(25));
    assert_eq!(tracker.watermark(), at(25));
}

#[test]
fn what_vanished_between_two_lives_holds_nothing_up() {
    let progress = Progress::with_map(at(5), at(12), vec![at(7), at(9)]);
    let mut tracker = Tracker::resume(&progress, OffsetMapLimit::KAFKA);
    assert_eq!(tracker.watermark(), at(5));
    // Compaction has removed 5 and 7.
    assert_eq!(tracker.take(at(9)), TakeOutcome::New);
    assert_eq!((tracker.removed(), tracker.watermark()), (2, at(9)));
    tracker.complete(at(9)).unwrap();
    assert_eq!(tracker.watermark(), at(12));
    assert_eq!(tracker.take(at(11)), TakeOutcome::Done);
    assert_eq!(tracker.take(at(12)), TakeOutcome::New);
}

#[test]
fn a_stuck_record_costs_no_memory_and_few_bytes() {
    let mut tracker = Tracker::new(Position::ZERO, OffsetMapLimit::KAFKA);
    tracker.take(Position::ZERO);
    for number in 1..2_000_000 {
        assert!(tracker.may_take(at(number)));
        tracker.take(at(number));
        tracker.complete(at(number)).unwrap();
    }
    assert_eq!((tracker.watermark(), tracker.in_flight()), (Position::ZERO, 1));
    assert!(tracker.progress().encode(STREAM).len() < 30);
}

#[test]
fn the_source_is_held_when_the_map_might_not_fit_and_let_go_again() {
    let mut tracker = Tracker::new(Position::ZERO, OffsetMapLimit::KAFKA);
    let mut next = (0..).map(|number| at(number * 500));
    let held = next.find(|position| {
        let room = tracker.may_take(*position);
        assert!(!room || tracker.take(*position) == TakeOutcome::New);
        !room
    });
    let held = held.unwrap();
    assert!(tracker.in_flight() > 2000, "{}", tracker.in_flight());
    // The map fits in whatever order records end; the worst case is that all but the last stay.
    tracker.complete(at(held.get() - 500)).unwrap();
    let text = tracker.progress().encode(STREAM);
    assert!((3000..=4096).contains(&text.len()), "{}", text.len());
    assert!(tracker.may_take(held));
}

#[test]
fn records_in_a_row_take_a_bit_each() {
    let mut tracker = Tracker::new(Position::ZERO, OffsetMapLimit::KAFKA);
    for number in 0..24_000 {
        assert!(tracker.may_take(at(number)), "{number}");
        tracker.take(at(number));
    }
    tracker.complete(at(23_999)).unwrap();
    assert!(tracker.progress().encode(STREAM).len() <= OffsetMapLimit::KAFKA.get());
}

/// The bound is reached with gaps of exactly a power of two. Filled until the tracker refuses, with
/// only the last position complete: the longest possible map.
#[test]
fn the_map_fits_to_the_last_bit() {
    for characters in OffsetMapLimit::MIN_CHARACTERS..300 {
        let limit = OffsetMapLimit::characters(characters).unwrap();
        for bits in (0..58).step_by(3) {
            let mut tracker = Tracker::new(Position::ZERO, limit);
            let (mut next, mut last) = (0, 0);
            while next < Position::END.get() && tracker.may_take(at(next)) {
                tracker.take(at(next));
                last = next;
                next += 1 + (1 << bits);
            }
            tracker.complete(at(last)).unwrap();
            let length = tracker.progress().encode(STREAM).len();
            assert!(length <= characters, "{length} of {characters} with gaps of {bits} bits");
        }
    }
}
