//! `keylane serve` in a terminal that is closed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::common::served::{Place, Served};

/// What it says goes to the terminal as well, which takes nothing any more.
#[test]
fn a_terminal_that_is_closed_stops_the_server_as_a_termination_does() {
    let mut place = Place::new("");
    // A copy of it in the server would keep it open.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let config = place.path("config.toml");
    // It gives the server a session of its own, with this terminal.
    let mut command = Command::new("setsid");
    command.args(["--ctty", env!("CARGO_BIN_EXE_keylane"), "serve", "--config"]).arg(&config);
    let streams = [end.try_clone().unwrap(), end.try_clone().unwrap(), end];
    let [stdin, stdout, stderr] = streams;
    let mut server = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
    drop(command);

    let mut said = BufReader::new(File::from(terminal));
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim_end().rsplit("//").next().unwrap();
    let job = crate::common::served::run_at(address, &["submit", "alone", "--payload", "1"]);
    let id = job.expect(0, &[]).stdout.trim_end().to_owned();
    assert_eq!(place.next(), "0 1");
    drop(said);
    // It stops, and waits for what runs.
    while is_ready(address) {}
    place.let_end("done");
    let status = server.wait().unwrap();
    assert_eq!(status.code(), Some(129), "{status}");

    let server = Served::start(&place, &[]);
    let results = server.run(&["results", &id]).expect(0, &[]).stdout.clone();
    let result: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!((&result["attempt"], &result["result"]), (&1.into(), &"done".into()), "{result}");
}

fn is_ready(address: &str) -> bool {
    let mut answer = String::new();
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let request = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let asked = stream.write_all(request.as_bytes());
    let answered = asked.and_then(|()| stream.read_to_string(&mut answer));
    answered.is_ok() && answer.contains(" 200 ")
}
