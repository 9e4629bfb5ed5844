//! The first job of `keylane serve`: its shell block runs as it stands.

use super::quick_start::{free_port, listening_at, shell};
use super::read;

#[test]
fn the_first_block_starts_a_server_and_runs_jobs() {
    let page = read("docs/serve.md");
    let block = page.blocks.iter().find(|block| block.language == "sh");
    let block = &*block.expect("docs/serve.md has no sh block").text;
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let output = shell(&listening_at(block, port), folder.path(), port);
    // `keylane results` of the last job.
    assert!(output.contains("hello ann"), "{output}");
    let is_succeeded = |line: &&str| line.contains("greet") && line.contains("succeeded");
    assert!(output.lines().any(|line| is_succeeded(&line)), "{output}");
    assert!(folder.path().join("keylane/keylane.db").exists());
}
