//! A journal after a power failure: acknowledged appends, commits and records that were read are
//! there, in order, and each append is whole.

use std::cell::RefCell;

use keylane_stream::journal::{Journal, RetentionPolicy};
use keylane_stream::tracker::Progress;
use keylane_stream::{Position, Record};
use keylane_testkit::Random;
use keylane_testkit::power_loss::{Crashed, Recording, SyncPoint, Trace, check_all, check_needed};

const NAME: &str = "a.journal";

/// What the journal has promised.
#[derive(Clone, Debug)]
enum Fact {
    /// The append is at these positions.
    Appended { append: u64, first: u64, end: u64 },
    /// The group has this watermark.
    Committed(u64),
    /// Records before this position may be removed from now on.
    Retains(u64),
}

/// Runs of a journal: opened, used, closed or killed, and opened again.
struct Run {
    recording: Option<Recording>,
    random: Random,
    facts: RefCell<Vec<Fact>>,
    appends: u64,
    committed: u64,
}

impl Run {
    fn start(seed: u64) -> Run {
        let (recording, random) = (Some(Recording::start()), Random::new(seed));
        Run { recording, random, facts: RefCell::default(), appends: 0, committed: 0 }
    }

    fn recording(&self) -> &Recording {
        self.recording.as_ref().unwrap()
    }

    fn note(&self, fact: Fact) {
        let mut facts = self.facts.borrow_mut();
        facts.push(fact);
        self.recording().note(facts.len() as u64 - 1);
    }

    /// Opens the journal. Records that can be read are promised, whatever process wrote them.
    fn open(&mut self) -> Result<Journal, String> {
        let journal = Journal::open(self.recording().folder().join(NAME));
        let journal = journal.map_err(|error| error.to_string())?;
        let read = appends(&journal)?;
        for (append, first, end) in read {
            self.note(Fact::Appended { append, first, end });
        }
        let progress = journal.committed("group").map_err(|error| error.to_string())?;
        self.committed = progress.map_or(0, |progress| progress.watermark().get());
        self.note(Fact::Committed(self.committed));
        Ok(journal)
    }

    /// Appends, commits and retains at random, up to a failure.
    fn work(&mut self, journal: &Journal) {
        for _ in 0..=self.random.below(8) {
            match self.random.below(8) {
                0 => {
                    let end = journal.end().get();
                    let to = self.committed + self.random.number() % (end - self.committed + 1);
                    self.committed = to;
                    let done = journal.commit("group", &Progress::up_to(Position::new(to)));
                    if done.is_ok() {
                        self.note(Fact::Committed(to));
                    }
                }
                1 => {
                    let from = self.random.number() % (self.committed + 1);
                    self.note(Fact::Retains(from));
                    let _ = journal.retain(RetentionPolicy::From(Position::new(from)));
                }
                _ => self.append(journal),
            }
        }
    }

    /// Appends without waiting between the calls, as many callers at once do.
    fn append(&mut self, journal: &Journal) {
        let mut pending = Vec::new();
        for _ in 0..=self.random.below(4) {
            let most = if self.random.once_in(4) { 60 } else { 4 };
            let count = 1 + self.random.below(most);
            let records = records(self.appends, count);
            pending.push((self.appends, count as u64, journal.append_later(&records)));
            self.appends += 1;
        }
        for (append, count, pending) in pending {
            if let Ok(positions) = pending.and_then(|pending| pending.wait()) {
                let (first, end) = (positions.start.get(), positions.end.get());
                assert_eq!(end - first, count);
                self.note(Fact::Appended { append, first, end });
            }
        }
    }

    /// Ends the process at a random moment of its life.
    fn kill(&mut self) {
        let trace = self.recording.take().unwrap().finish();
        let at = trace.len() - self.random.below(trace.len().min(200));
        self.recording = Some(Recording::after_kill(&trace, at));
    }

    fn finish(mut self) -> (Trace, Vec<Fact>) {
        (self.recording.take().unwrap().finish(), self.facts.into_inner())
    }
}

/// Records that name their append and their place in it.
fn records(append: u64, count: usize) -> Vec<Record> {
    let payload = |number| format!("{append} {number} {count} {}", "x".repeat(number * 7 % 300));
    (0..count).map(|number| Record::new(format!("key {number}"), payload(number))).collect()
}

/// Returns the whole appends in a journal with their positions, the first of which may have lost
/// records to retention.
fn appends(journal: &Journal) -> Result<Vec<(u64, u64, u64)>, String> {
    let begin = journal.begin().map_err(|error| error.to_string())?;
    let delivered = journal.read(begin, usize::MAX).map_err(|error| error.to_string())?;
    if begin.get() + delivered.len() as u64 != journal.end().get() {
        return Err(format!("{} records from {begin} to {}", delivered.len(), journal.end()));
    }
    let mut found: Vec<(u64, u64, u64)> = Vec::new();
    // Number of records that the present append still has.
    let mut missing = 0;
    for one in delivered {
        let text = String::from_utf8(one.record.payload().to_vec()).unwrap();
        let mut words = text.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
        let mut word = || words.next().unwrap();
        let (append, number, count) = (word(), word(), word());
        let position = one.position.get();
        match found.last_mut() {
            Some((last, _, end)) if *last == append && number + missing == count => *end += 1,
            Some((last, ..)) if *last < append && missing == 0 && number == 0 => {
                found.push((append, position, position + 1));
            }
            None => found.push((append, position, position + 1)),
            Some(last) => return Err(format!("{last:?}, then {append} {number}")),
        }
        missing = count - number - 1;
    }
    if missing > 0 {
        return Err(format!("the last append lacks {missing} records"));
    }
    Ok(found)
}

/// Checks a journal after a power failure against the promises before it.
fn check(crashed: &Crashed, facts: &[Fact]) -> Result<(), String> {
    let journal = Journal::open(crashed.folder().join(NAME)).map_err(|error| error.to_string())?;
    let damage = journal.check().map_err(|error| error.to_string())?.damage;
    if !damage.is_empty() {
        return Err(format!("{damage:?}"));
    }
    let found = appends(&journal)?;
    let committed = journal.committed("group").map_err(|error| error.to_string())?;
    let committed = committed.map_or(0, |progress| progress.watermark().get());
    let known = || crashed.notes().iter().map(|note| &facts[*note as usize]);
    let removed = known().map(|fact| if let Fact::Retains(from) = fact { *from } else { 0 }).max();
    for fact in known() {
        match fact {
            Fact::Appended { first, .. } if *first < removed.unwrap_or(0) => {}
            Fact::Appended { append, first, end } if !found.contains(&(*append, *first, *end)) => {
                return Err(format!("append {append} at {first}..{end} is lost: {found:?}"));
            }
            Fact::Committed(watermark) if *watermark > committed => {
                return Err(format!("{watermark} was committed, and is {committed}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Several processes after each other, some of them killed.
fn used(seed: u64) -> (Trace, Vec<Fact>) {
    let mut run = Run::start(seed);
    for _ in 0..=run.random.below(3) {
        let journal = run.open().unwrap();
        run.work(&journal);
        drop(journal);
        if run.random.once_in(2) {
            run.kill();
        }
    }
    run.finish()
}

#[test]
fn nothing_acknowledged_or_read_is_lost() {
    check_all(60, used, |crashed, facts| check(crashed, facts));
}

/// Opened, used and opened again, so that all syncs of a journal happen.
fn used_twice(seed: u64) -> (Trace, Vec<Fact>) {
    let mut run = Run::start(seed);
    for _ in 0..2 {
        let journal = run.open().unwrap();
        run.append(&journal);
        drop(journal);
    }
    run.finish()
}

#[test]
fn the_sync_of_a_commit_is_needed() {
    let log = |sync: SyncPoint<'_>| sync == SyncPoint::File("a.journal-wal");
    check_needed("the sync of the log", log, used_twice, |crashed, facts| check(crashed, facts));
}

#[test]
fn the_sync_of_a_checkpoint_is_needed() {
    let file = |sync: SyncPoint<'_>| sync == SyncPoint::File(NAME);
    check_needed("the sync of the file", file, used_twice, |crashed, facts| check(crashed, facts));
}

#[test]
fn the_sync_of_the_folder_is_needed() {
    let folder = |sync: SyncPoint<'_>| sync == SyncPoint::Folder;
    check_needed("the sync of the folder", folder, used_twice, |crashed, facts| {
        check(crashed, facts)
    });
}

/// A sync fails; the process goes on as it can, ends, and another one continues.
fn used_with_failing_sync(seed: u64) -> (Trace, Vec<Fact>) {
    let mut run = Run::start(seed);
    run.recording().fail_sync(Random::new(seed).below(14));
    for _ in 0..3 {
        if let Ok(journal) = run.open() {
            run.work(&journal);
        }
    }
    run.finish()
}

#[test]
fn nothing_acknowledged_is_lost_after_a_failed_sync() {
    // A file whose creation has failed promises nothing, and may be refused.
    check_all(60, used_with_failing_sync, |crashed, facts| match crashed.notes() {
        [] => Ok(()),
        _ => check(crashed, facts),
    });
}

/// SQLite ignores a failed sync of the folder, and reports a failed switch to its log late.
#[test]
fn a_journal_that_opens_although_a_sync_has_failed_loses_nothing() {
    for failing in 0..10 {
        let mut run = Run::start(failing);
        run.recording().fail_sync(failing as usize);
        if let Ok(journal) = run.open() {
            run.append(&journal);
        }
        let (trace, facts) = run.finish();
        for seed in 0..50 {
            let crashed = trace.crash(trace.len(), seed);
            if !facts.is_empty() {
                check(&crashed, &facts).unwrap_or_else(|why| panic!("sync {failing}: {why}"));
            }
        }
    }
}

/// A transaction in the log whose sync has failed can be read by the next process. It must not be
/// lost then, nor the transactions behind it.
#[test]
fn a_log_with_a_failed_sync_is_made_durable_before_it_is_used() {
    for seed in 0..20 {
        let mut run = Run::start(seed);
        let journal = run.open().unwrap();
        run.append(&journal);
        run.recording().fail_sync(0);
        run.append(&journal);
        drop(journal);
        let journal = run.open().unwrap();
        run.append(&journal);
        drop(journal);
        let (trace, facts) = run.finish();
        for crash in 0..20 {
            let crashed = trace.crash(trace.len(), crash);
            check(&crashed, &facts).unwrap_or_else(|why| panic!("run {seed}: {why}"));
        }
    }
}
