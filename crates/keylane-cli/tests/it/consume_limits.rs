//! Limits of `keylane produce` and `consume`: a full disk, and many connections to `--listen`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{build_library, feed, finish, subcommand};

/// Maximum number of concurrent connections to `--listen`.
const MAX_CONNECTIONS: usize = 64;

/// Waits until the journal's write-ahead log has a record.
fn is_written(folder: &Path, payload: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    let is_in = |log: &[u8]| log.windows(payload.len()).any(|part| part == payload.as_bytes());
    while !fs::read(folder.join("j-wal")).is_ok_and(|log| is_in(&log)) {
        assert!(Instant::now() < until, "{payload} was not written");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn records_that_a_full_disk_refuses_are_named_and_the_journal_continues_with_free_space() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("failing_disk.so");
    build_library("../keylane-stream/tests/data/failing_disk.c", &library);
    let failure = folder.path().join("failure");
    let command = |name: &str, words: &[&str]| {
        let mut command = subcommand(name, words);
        command.current_dir(folder.path());
        command.env("LD_PRELOAD", &library).env("KEYLANE_FAILING_DISK", &failure);
        command
    };
    let words = ["journal:j", "--key", "1"];
    let mut producer = command("produce", &words).spawn().unwrap();
    let mut input = producer.stdin.take().unwrap();
    // More than the reader's buffer, so that the lines are read.
    let line = |number: u32| format!("a number-{number} {}\n", "x".repeat(200_000));
    input.write_all((line(1) + &line(2) + &line(3)).as_bytes()).unwrap();
    is_written(folder.path(), "number-2 ");
    fs::write(&failure, "f").unwrap();
    // The producer may end while it is written to.
    (4..40).all(|number| input.write_all(line(number).as_bytes()).is_ok());
    drop(input);
    let refused = finish(producer);
    refused.expect(255, &[" of the input was not written: ", " records are in j"]);
    // The first write that fails may be that of the journal, or that of its high-water mark.
    let causes = ["the disk is full", "No space left on device"];
    assert!(causes.iter().any(|cause| refused.stderr.contains(cause)), "{}", refused.stderr);
    let told = |part: &str| {
        let words = refused.stderr.lines().find(|line| line.contains(part)).unwrap().split(' ');
        words.filter_map(|word| word.parse::<u32>().ok()).next().unwrap()
    };
    let (first_refused, written) = (told(" of the input was not written"), told(" records are in"));
    assert!((3..40).contains(&first_refused), "{}", refused.stderr);
    assert_eq!(written, first_refused - 1, "{}", refused.stderr);

    fs::write(&failure, "").unwrap();
    let rest: String = (first_refused..43).map(line).collect();
    feed(command("produce", &words), rest.as_bytes()).expect(0, &[" records are in j"]);
    let words = ["journal:j", "--group", "g", "--to-the-end", "-j", "1", "--payload", "stdin"];
    let words = [&words[..], &["--", "cut", "-d", " ", "-f", "2"]].concat();
    let consumed = feed(command("consume", &words), b"");
    consumed.expect(0, &["42 handled"]);
    let all: String = (1..43).map(|number| format!("number-{number}\n")).collect();
    assert_eq!(consumed.stdout, all);
}

/// Sends a request whose connection stays open.
fn ask(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    stream
}

/// Returns whether an answer begins before the timeout.
fn is_answered(mut stream: &TcpStream, timeout: Duration) -> bool {
    stream.set_read_timeout(Some(timeout)).unwrap();
    stream.read(&mut [0; 512]).is_ok_and(|read| read > 0)
}

#[test]
fn connections_beyond_the_limit_wait_for_one_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut produce = subcommand("produce", ["journal:j"]);
    produce.current_dir(folder.path());
    feed(produce, b"x\n").expect(0, &[]);
    let words = ["journal:j", "--group", "g", "--listen", "127.0.0.1:0", "--", "true"];
    let mut consume = subcommand("consume", words);
    consume.current_dir(folder.path()).stdin(Stdio::null());
    let mut child = consume.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.trim().rsplit("http://").next().unwrap().to_owned();

    // The server ends connections that are idle for ten seconds, so a slow round tells nothing.
    let is_quick = |since: Instant| since.elapsed() < Duration::from_secs(7);
    loop {
        let begun = Instant::now();
        let mut open: Vec<_> = (0..MAX_CONNECTIONS).map(|_| ask(&address)).collect();
        assert!(open.iter().all(|stream| is_answered(stream, Duration::from_secs(60))));
        let waiting = ask(&address);
        let was_refused = !is_answered(&waiting, Duration::from_millis(300));
        if !is_quick(begun) {
            continue;
        }
        assert!(was_refused, "more than {MAX_CONNECTIONS} connections are served");
        open.pop();
        assert!(is_answered(&waiting, Duration::from_secs(60)), "a free place is not used");
        break;
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.stderr = Some(stderr.into_inner());
    finish(child);
}
