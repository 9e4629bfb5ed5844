//! The quick start: its shell blocks run as they stand, and print what the page shows.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use super::page::Block;
use super::read;

/// Printed between the blocks of the script.
const MARK: &str = "== next block ==";

#[test]
fn the_blocks_print_what_the_page_shows() {
    let page = read("docs/quick-start.md");
    let shown =
        page.blocks.iter().skip(1).map(|block| (block.language == "text").then_some(&*block.text));
    let shown = page.blocks.iter().zip(shown.chain([None]));
    // cargo would install the command or build a program; the program is a doctest.
    let steps =
        shown.filter(|(block, _)| block.language == "sh" && !block.text.starts_with("cargo "));
    let steps: Vec<_> = steps.collect();
    assert!(steps.len() > 5, "the page has its blocks in another form");

    let port = free_port();
    let script: String = steps.iter().map(|(block, _)| step(block, port)).collect();
    let folder = tempfile::tempdir().unwrap();
    let output = shell(&script, folder.path(), port);
    let printed: Vec<_> = output.split(MARK).collect();
    assert_eq!(printed.len(), steps.len() + 1, "{output}");
    for ((block, shown), printed) in steps.iter().zip(printed) {
        let line = block.line;
        let expected = shown.unwrap_or_default().trim();
        assert_eq!(printed.trim(), expected, "docs/quick-start.md:{line}");
    }
}

fn step(block: &Block, port: u16) -> String {
    format!("{}echo '{MARK}'\n", listening_at(&block.text, port))
}

/// The block with a server at this port: that of the page may be in use on the machine of the test.
pub(super) fn listening_at(block: &str, port: u16) -> String {
    block.replace("keylane serve ", &format!("keylane serve --listen 127.0.0.1:{port} "))
}

pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The standard output of a script that finds `keylane` in its path.
pub(super) fn shell(script: &str, folder: &Path, port: u16) -> String {
    let binaries = Path::new(env!("CARGO_BIN_EXE_keylane")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    // A step that fails leaves no server behind.
    let script = format!("trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}");
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &script]).current_dir(folder).env("PATH", path);
    bash.env("XDG_DATA_HOME", folder);
    let output = bash.env("KEYLANE_SERVER", format!("http://127.0.0.1:{port}")).output().unwrap();
    let (stdout, stderr) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    let log = fs::read_to_string(folder.join("server.log")).unwrap_or_default();
    assert!(output.status.success(), "{}\n{stderr}\n{log}", String::from_utf8_lossy(&stdout));
    String::from_utf8(stdout).unwrap()
}
