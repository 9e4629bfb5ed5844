//! Compressed input of a run is decompressed while it is read. Data that is cut off or damaged ends the
//! run with an error that has the place, after the records before it.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::common::{feed, keylane, numbers, run, subcommand};

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

#[test]
fn every_format_can_be_compressed() {
    for (format, text) in
        [("--lines", "x 1\nx 2\n"), ("--csv", "x,1\nx,2\n"), ("--ndjson", "1\n2\n")]
    {
        for packed in [gzip(text), zstd(text)] {
            let outcome = run(&[format, "--key", "1", "--", "echo"], packed);
            outcome.expect(0, &[]);
            assert_eq!(outcome.sorted(), text.lines().collect::<Vec<_>>());
        }
    }
}

#[test]
fn files_are_known_by_their_content_and_not_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let both = [gzip("2\n"), gzip("3")].concat();
    for (name, content) in [("a.gz", b"1\n".to_vec()), ("b.txt", both), ("c", zstd("\u{feff}4\n"))]
    {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let mut command = keylane(["-j1", "--key", "1", "a.gz", "b.txt", "c", "--", "echo"]);
    command.current_dir(folder.path());
    assert_eq!(feed(command, b"").expect(0, &[]).stdout, "1\n2\n3\n4\n");
}

#[test]
fn data_that_is_cut_off_ends_the_run_after_what_was_read() {
    let text = numbers(50_000);
    for (name, packed) in [("gzip", gzip(&text)), ("zstd", zstd(&text))] {
        let half = &packed[..packed.len() / 2];
        let outcome = run(&["--worker", "--key", "1", "--", "cat"], half);
        outcome.expect(
            255,
            &["standard input:", "data is damaged or cut off", &format!("`{name} -t FILE`")],
        );
        let mut read: Vec<u32> = outcome.stdout.lines().map(|line| line.parse().unwrap()).collect();
        read.sort_unstable();
        assert!(read.iter().copied().eq(1..=read.len() as u32) && read.len() < 50_000);
        let line = format!("standard input:{}: reading failed", read.len() + 1);
        assert!(outcome.stderr.contains(&line), "{}: {line}", outcome.stderr);
    }
}

#[test]
fn other_formats_are_refused_with_the_remedy() {
    let outcome = run(&["--key", "1", "--", "echo"], b"\xFD7zXZ\0 and so on");
    outcome.expect(
        255,
        &["it is compressed with xz; decompress it first, as in `xz -dc FILE | keylane"],
    );
}

#[test]
fn records_for_a_journal_can_be_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = subcommand("produce", ["journal:j"]);
    command.current_dir(folder.path());
    feed(command, &gzip("a\nb\n")).expect(0, &[]);
    let words = ["journal:j", "--group", "g", "--to-the-end", "--order", "none", "--", "echo"];
    let mut command = subcommand("consume", words);
    command.current_dir(folder.path());
    assert_eq!(feed(command, b"").expect(0, &[]).sorted(), ["a", "b"]);
}

/// What the programs write, which have more features of their formats.
#[test]
fn output_of_the_programs_is_read() {
    let text = numbers(30_000);
    for (program, options) in [("gzip", "-9"), ("zstd", "-19")] {
        let mut pack = Command::new(program);
        let Ok(mut child) =
            pack.args([options, "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        else {
            continue;
        };
        let mut input = child.stdin.take().unwrap();
        let fed = text.clone();
        let writer = std::thread::spawn(move || input.write_all(fed.as_bytes()).unwrap());
        let packed = child.wait_with_output().unwrap().stdout;
        writer.join().unwrap();
        let outcome = run(&["-j1", "--worker", "--key", "1", "--", "cat"], packed);
        assert!(outcome.expect(0, &[]).stdout == text);
    }
}
