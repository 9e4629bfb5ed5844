//! `keylane workers`: remote workers with what they run.

use std::io::Write;
use std::net::TcpStream;

use crate::common::served::{Place, Served};

#[test]
fn a_worker_is_listed_with_its_lease() {
    let place = Place::new("[kinds.remote]\nlease = \"60s\"\n");
    let server = Served::start(&place, &[]);
    assert_eq!(server.run(&["workers"]).expect(0, &[]).stdout.lines().count(), 1);
    let job = server.submit(&["remote", "--key", "ann"]);
    let ask = r#"{"kinds":["remote"],"wait_ms":60000,"worker":"w1"}"#;
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let length = ask.len();
    let head = "POST /v1/leases HTTP/1.1\r\nhost: localhost\r\nconnection: close";
    write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{ask}").unwrap();
    let answer = std::io::read_to_string(stream).unwrap();
    assert!(answer.contains("\"leases\":[{"), "{answer}");
    let listed = server.run(&["workers"]).expect(0, &[]).stdout.clone();
    let line = listed.lines().find(|line| line.starts_with("w1")).unwrap();
    assert!(line.contains("remote") && line.contains(&format!("{job}/0 key ann")), "{listed}");
    let json = server.run(&["workers", "--json"]).expect(0, &[]).stdout.clone();
    assert!(json.contains(r#""name":"w1""#) && json.contains(r#""keys":["ann"]"#), "{json}");
}
