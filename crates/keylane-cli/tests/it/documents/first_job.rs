//! The first job of `keylane serve`: its configuration and its shell block run as they stand.

use std::fs;

use super::quick_start::{free_port, shell};
use super::read;

#[test]
fn the_first_blocks_start_a_server_and_run_jobs() {
    let page = read("docs/serve.md");
    let [config, steps] = ["toml", "sh"].map(|language| {
        let found = page.blocks.iter().find(|block| block.language == language);
        &*found.unwrap_or_else(|| panic!("docs/serve.md has no {language} block")).text
    });
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    // The port of the page may be in use on the machine of the test.
    let here = format!("[server]\nlisten = \"127.0.0.1:{port}\"\n");
    let config = config.replacen("[server]\n", &here, 1);
    assert!(config.contains(&here), "{config}");
    fs::write(folder.path().join("keylane.toml"), config).unwrap();
    let output = shell(&steps.replace("7420", &port.to_string()), folder.path(), port);
    // `keylane results` of the last job.
    assert!(output.contains("hello ann"), "{output}");
    let is_succeeded = |line: &&str| line.contains("greet") && line.contains("succeeded");
    assert!(output.lines().any(|line| is_succeeded(&line)), "{output}");
    assert!(folder.path().join("keylane.db").exists());
}
