//! On a machine without the certificates of authorities, such as a minimal container, all that goes over http:// works.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use crate::common::served::Served;
use crate::common::{Outcome, finish, subcommand};

/// A command that finds no certificates.
fn without_certificates(name: &str, words: &[&str]) -> Command {
    let mut command = subcommand(name, words);
    command.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nonexistent");
    command.env_remove("KEYLANE_TOKEN");
    command
}

fn run(name: &str, words: &[&str]) -> Outcome {
    finish(without_certificates(name, words).spawn().unwrap())
}

/// Answers one request with 200.
fn answer(listener: TcpListener) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut part = [0; 1024];
            let read = stream.read(&mut part).unwrap();
            request.extend_from_slice(&part[..read]);
        }
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n7";
        stream.write_all(answer.as_bytes()).unwrap();
    })
}

#[test]
fn servers_clients_handlers_and_lag_use_plain_http() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = folder.path().join("keylane.toml");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nstore = \"{}/tasks.db\"\n[kinds.hook]\nhttp = \"http://{}/\"\n",
        folder.path().display(),
        listener.local_addr().unwrap(),
    );
    fs::write(&config, text).unwrap();
    let handler = answer(listener);
    let mut serve = without_certificates("serve", &["--config", config.to_str().unwrap()]);
    let server = Served::spawn(&mut serve);
    let address = format!("http://{}", server.address);
    let submit = ["hook", "--payload", "1", "--wait", "--server", &address];
    run("submit", &submit).expect(0, &["succeeded"]);
    handler.join().unwrap();
    run("lag", &["http://127.0.0.1:1"]).expect(255, &["cannot ask http://127.0.0.1:1"]);
}

#[test]
fn https_is_refused_with_the_remedy() {
    let submit = ["hook", "--server", "https://127.0.0.1:1"];
    run("submit", &submit).expect(255, &["ca-certificates", "SSL_CERT_FILE"]);
}
