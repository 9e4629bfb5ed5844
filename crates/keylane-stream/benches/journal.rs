//! Cost of the journal: records per second with every acknowledged one on disk, the time of a call,
//! the time to open it, and the bytes of a record; beside bare SQLite and a bare file.
//!
//! `cargo bench -p keylane-stream --bench journal [-- FOLDER]`; the folder determines the disk.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keylane_stream::journal::Journal;
use keylane_stream::{Position, Record};
use rusqlite::Connection;

const WINDOW: Duration = Duration::from_millis(700);
const RUNS: usize = 5;
const PAYLOAD: usize = 100;

/// Number of records of a call, and its duration.
type Call = (u64, Duration);

fn main() {
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    println!("payload {PAYLOAD} bytes, key 8 bytes; median of {RUNS} runs (lowest to highest)\n");
    println!("| what | records/s | p50 µs | p99 µs |\n|---|---:|---:|---:|");
    for (producers, batch) in [(1, 1), (1, 100), (1, 1000), (100, 1), (1000, 1), (4, 1000)] {
        show(&format!("journal, {producers} producers, {batch} a call"), || {
            journal(&folder, producers, batch)
        });
    }
    for batch in [1, 100, 1000] {
        show(&format!("bare SQLite, a row each, {batch} a transaction"), || sqlite(&folder, batch));
        show(&format!("bare file, fdatasync after {batch}"), || file(&folder, batch));
    }
    recovery(&folder);
}

fn show(what: &str, mut run: impl FnMut() -> (f64, Vec<Call>)) {
    let mut rates = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..RUNS {
        let (rate, some) = run();
        rates.push(rate);
        calls.extend(some.into_iter().map(|(_, took)| took));
    }
    rates.sort_by(f64::total_cmp);
    calls.sort_unstable();
    let at = |share: f64| calls[((calls.len() - 1) as f64 * share) as usize].as_micros();
    let [low, median, high] = [rates[0], rates[RUNS / 2], rates[RUNS - 1]];
    println!("| {what} | {median:.0} ({low:.0}–{high:.0}) | {} | {} |", at(0.5), at(0.99));
}

fn records(count: usize) -> Vec<Record> {
    (0..count).map(|i| Record::new(format!("key{i:05}"), vec![i as u8; PAYLOAD])).collect()
}

fn journal(folder: &Path, producers: usize, batch: usize) -> (f64, Vec<Call>) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let journal = Journal::open(folder.path().join("journal")).unwrap();
    let over = AtomicBool::new(false);
    let start = Instant::now();
    let calls: Vec<Call> = thread::scope(|scope| {
        let producers: Vec<_> = (0..producers)
            .map(|_| {
                let (journal, over) = (journal.clone(), &over);
                let produce = move || {
                    let records = records(batch);
                    let mut calls = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        let start = Instant::now();
                        let positions = journal.append_all(&records).unwrap();
                        calls.push((positions.end.get() - positions.start.get(), start.elapsed()));
                    }
                    calls
                };
                thread::Builder::new().stack_size(128 * 1024).spawn_scoped(scope, produce).unwrap()
            })
            .collect();
        thread::sleep(WINDOW);
        over.store(true, Ordering::Relaxed);
        producers.into_iter().flat_map(|producer| producer.join().unwrap()).collect()
    });
    finish(start, calls)
}

fn finish(start: Instant, calls: Vec<Call>) -> (f64, Vec<Call>) {
    let records: u64 = calls.iter().map(|(records, _)| records).sum();
    (records as f64 / start.elapsed().as_secs_f64(), calls)
}

fn sqlite(folder: &Path, batch: usize) -> (f64, Vec<Call>) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let mut connection = Connection::open(folder.path().join("sqlite")).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection.execute_batch("CREATE TABLE record (id INTEGER PRIMARY KEY, key, payload)").unwrap();
    let records = records(batch);
    repeat(batch, || {
        let transaction = connection.transaction().unwrap();
        {
            let sql = "INSERT INTO record (key, payload) VALUES (?1, ?2)";
            let mut insert = transaction.prepare_cached(sql).unwrap();
            for record in &records {
                insert.execute((record.key.as_deref(), record.payload())).unwrap();
            }
        }
        transaction.commit().unwrap();
    })
}

fn file(folder: &Path, batch: usize) -> (f64, Vec<Call>) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let mut file = File::create(folder.path().join("file")).unwrap();
    let records = records(batch);
    repeat(batch, || {
        let mut bytes = Vec::new();
        for record in &records {
            bytes.extend(record.key.as_deref().unwrap_or_default());
            bytes.extend(record.payload());
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
    })
}

fn repeat(batch: usize, mut call: impl FnMut()) -> (f64, Vec<Call>) {
    let start = Instant::now();
    let mut calls = Vec::new();
    while start.elapsed() < WINDOW {
        let start = Instant::now();
        call();
        calls.push((batch as u64, start.elapsed()));
    }
    finish(start, calls)
}

/// Ten million records: the size of the file, the time to open it as after a crash, and the speed
/// of reading from the beginning.
fn recovery(folder: &Path) {
    const RECORDS: u64 = 10_000_000;
    let folder = tempfile::tempdir_in(folder).unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path).unwrap();
    let batch = records(10_000);
    let start = Instant::now();
    for _ in 0..RECORDS / 10_000 {
        drop(journal.append_later(&batch).unwrap());
    }
    journal.append_all(&[]).unwrap();
    let took = start.elapsed();
    assert_eq!(journal.end(), Position::new(RECORDS));
    println!("\n10 million records: written in {took:.2?} without waiting for each call");

    // Never closed, and its files under another name, as a crash leaves them.
    std::mem::forget(journal);
    let copy = folder.path().join("copy");
    for suffix in ["", "-wal", "-mark"] {
        let with = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        std::fs::rename(with(&path), with(&copy)).unwrap();
    }
    let start = Instant::now();
    let copied = Journal::open(&copy).unwrap();
    println!("opened as after a crash in {:.2?}", start.elapsed());
    assert_eq!(copied.end(), Position::new(RECORDS));

    let size = |suffix| std::fs::metadata(format!("{}{suffix}", copy.display())).unwrap().len();
    let bytes = size("") + size("-wal");
    println!(
        "{:.1} bytes a record, of which {} are key and payload",
        bytes as f64 / RECORDS as f64,
        PAYLOAD + 8
    );
    let start = Instant::now();
    let mut next = Position::ZERO;
    while next < Position::new(2_000_000) {
        next = copied.read(next, 10_000).unwrap().last().unwrap().position.next();
    }
    let rate = next.get() as f64 / start.elapsed().as_secs_f64();
    println!("read at {rate:.0} records a second by one reader");
    let start = Instant::now();
    assert_eq!(copied.check().unwrap().damage, []);
    println!("checked in {:.2?}", start.elapsed());
}
