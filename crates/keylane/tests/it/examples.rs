//! Every example runs to its end. They assert their results, so that is enough.
//!
//! A plain `cargo test` builds the examples beside the tests, and this looks for them there. With
//! `--test it` alone it runs the ones that were built last.

use std::path::PathBuf;
use std::process::Command;

/// One test for each, so that a failure says which.
macro_rules! examples {
    ($($(#[$when:meta])? $name:ident),* $(,)?) => {
        $(
            #[test]
            $(#[$when])?
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn none_is_left_out() {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
            let mut found: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            found.sort_unstable();
            let mut listed = [$(stringify!($name)),*];
            listed.sort_unstable();
            assert_eq!(found, listed);
        }
    };
}

examples!(
    backpressure,
    barrier,
    byte_bound,
    cancel,
    closing,
    delayed,
    explain,
    fair_queue,
    #[cfg(feature = "tokio")]
    futures,
    gate,
    handler,
    handles,
    inside,
    jobs,
    key_state,
    latest,
    limited,
    #[cfg(feature = "metrics")]
    metrics,
    ordered,
    pause,
    per_key_bound,
    placement,
    predicate,
    quarantine,
    rates,
    record,
    resize,
    retry,
    scope,
    rollup,
    shared,
    snapshot,
    statistics,
    trace,
    turns,
);

fn run(example: &str) {
    // This test is `target/debug/deps/it-…`, an example `target/debug/examples/…`.
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples");
    path.push(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.is_file(),
        "{} is missing: a plain `cargo test` builds it, `--test it` alone does not",
        path.display()
    );
    let output = Command::new(path).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!output.stdout.is_empty(), "an example says what it does");
}
