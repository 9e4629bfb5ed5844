//! Fuzzing without a fuzzer: a target gets the files of its corpus, and mutations of them from a seed.
//!
//! A target is a function of bytes that panics if a promise does not hold. The same functions are the
//! targets of `cargo fuzz`, which finds deeper inputs by coverage; see `fuzz/README.md`. This module
//! runs them as ordinary tests: every file of the corpus, then mutations of one or two of them.
//!
//! `KEYLANE_INPUTS` is the number of mutations for each target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use crate::random::Random;

/// Mutations of a test run without `KEYLANE_INPUTS`.
const INPUTS: u64 = 3_000;

/// Maximum length of a mutated input, in bytes.
const MAX_BYTES: usize = 4096;

/// Runs a target on its corpus, the files in `folder`, and on mutations of them.
///
/// # Panics
/// If the target panics: the input is printed, and kept in the system's folder for temporary files.
/// Also if the corpus is empty.
pub fn run(folder: impl AsRef<Path>, target: impl Fn(&[u8])) {
    let folder = folder.as_ref();
    let corpus = read(folder);
    assert!(!corpus.is_empty(), "{} has no files", folder.display());
    for (path, bytes) in &corpus {
        try_input(bytes, &target, &path.display().to_string());
    }
    let inputs = std::env::var("KEYLANE_INPUTS");
    let inputs = inputs.map_or(INPUTS, |text| text.parse().expect("KEYLANE_INPUTS is a number"));
    let mut random = Random::new(0x6b65_796c_616e_6501);
    for number in 0..inputs {
        let mut input = corpus[random.below(corpus.len())].1.clone();
        for _ in 0..=random.below(4) {
            let other = &corpus[random.below(corpus.len())].1;
            mutate(&mut input, other, &mut random);
        }
        input.truncate(MAX_BYTES);
        try_input(&input, &target, &format!("mutation {number}"));
    }
}

fn read(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).expect("a file of the corpus");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

fn try_input(input: &[u8], target: &impl Fn(&[u8]), what: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let kept = std::env::temp_dir().join(format!("keylane-input-{}", std::process::id()));
        let kept = fs::write(&kept, input).map(|()| kept);
        eprintln!("{what} breaks a promise: {}\nkept: {kept:?}", input.escape_ascii());
        resume_unwind(panic);
    }
}

/// Words that parsers treat in a special way, and numbers at the ends of ranges.
const WORDS: [&[u8]; 24] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"null",
    b"-1",
    b"1e999",
    b"9007199254740993",
    b"18446744073709551616",
    b"\\u0000",
    b"\\ud800",
    b"\xf0\x9f\x92\xa9",
    b"\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x01",
    b"\x00\x00\x00\x00\x00\x00\x00\x80",
];

/// Changes one place of an input.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = (at + 1 + random.below(16)).min(input.len());
    match random.below(9) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.below(256) as u8,
        2 => input.insert(at, random.below(256) as u8),
        3 if at < end => drop(input.drain(at..end)),
        4 => {
            let part = input[at.min(end)..end].to_vec();
            input.splice(at..at, part);
        }
        5 => {
            let word = WORDS[random.below(WORDS.len())];
            input.splice(at..at, word.iter().copied());
        }
        6 => {
            let word = WORDS[random.below(WORDS.len())];
            input.splice(at.min(end)..end, word.iter().copied());
        }
        7 if !other.is_empty() => {
            let from = random.below(other.len());
            let to = (from + 1 + random.below(64)).min(other.len());
            input.splice(at..at, other[from..to].iter().copied());
        }
        _ => input.truncate(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that cannot fail would make every test of a target pass.
    #[test]
    fn a_broken_promise_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("one"), b"a harmless input").unwrap();
        let target = |input: &[u8]| assert!(!input.contains(&0xff), "a byte that is refused");
        let found = catch_unwind(AssertUnwindSafe(|| run(folder.path(), target)));
        assert!(found.is_err());
        run(folder.path(), |input| assert!(input.len() <= MAX_BYTES));
    }
}
