//! `keylane webhooks`, and the settings of webhooks: from the configuration to the receiver, also after a reload.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::common::served::{Place, Served};
use crate::common::subcommand;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";

/// Takes a request and answers with this status line. Returns the request.
fn receive(listener: &TcpListener, status: &str) -> String {
    let (mut connection, _) = listener.accept().unwrap();
    let request = read(&mut connection);
    write!(connection, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .unwrap();
    request
}

fn read(connection: &mut TcpStream) -> String {
    let (mut text, mut part) = (String::new(), [0; 4096]);
    loop {
        let read = connection.read(&mut part).unwrap();
        text += std::str::from_utf8(&part[..read]).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() == length.unwrap().parse::<usize>().unwrap() {
            return text;
        }
    }
}

fn place(tables: &str) -> Place {
    let place = Place::new(&format!("[kinds.quick]\ncommand = [\"cat\"]\n{tables}"));
    fs::write(place.path("secrets"), SECRET).unwrap();
    place
}

#[test]
fn a_webhook_is_sent_listed_retried_and_removed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let place =
        place("[webhooks]\nsecret_file = \"DIR/secrets\"\nallow_networks = [\"127.0.0.1\"]\n");
    let server = Served::start(&place, &[]);
    let job = server.submit(&["quick", "--payload", "1", "--webhook", &url]);
    let request = receive(&listener, "503 Busy");
    assert!(request.starts_with("POST /hook HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("webhook-signature: v1,"), "{request}");
    assert!(request.contains(&format!("\"id\":\"{job}\"")), "{request}");
    let status = server.run(&["status", &job]).expect(0, &[]).stdout.clone();
    assert!(status.contains(&format!("webhook     {url}")), "{status}");

    // Its failure may be on its way to the disk.
    let listed = loop {
        let listed = server.run(&["webhooks", "--state", "waiting"]).expect(0, &[]).stdout.clone();
        if listed.contains("1 of 8") {
            break listed;
        }
    };
    for part in [&job, "job.succeeded", "waiting", &url, "503"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let id = listed.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let retried = server.run(&["webhooks", "retry", &id]).expect(0, &[]).stdout.clone();
    assert_eq!(retried, format!("{id} is sent now\n"));
    receive(&listener, "410 Gone");
    let failed = loop {
        let failed = server.run(&["webhooks", "--state", "failed", "--json"]);
        let failed = failed.expect(0, &[]).stdout.clone();
        if !failed.is_empty() {
            break failed;
        }
    };
    assert!(failed.contains("\"state\":\"failed\"") && failed.contains("410"), "{failed}");
    server.run(&["webhooks", "remove", &id]).expect(0, &[]);
    server.run(&["webhooks", "remove", &id]).expect(4, &["there is no webhook"]);
    let empty = server.run(&["webhooks", "--json"]).expect(0, &[]).stdout.clone();
    assert_eq!(empty, "");
}

#[test]
fn wrong_settings_are_refused_with_the_remedy() {
    let check = |tables: &str, said: &str| {
        let place = place(tables);
        let config = place.path("config.toml");
        let config = config.to_str().unwrap();
        let mut command = subcommand("serve", ["--check", "--config", config]);
        let outcome = command.output().unwrap();
        let text = String::from_utf8(outcome.stderr).unwrap();
        assert!(!outcome.status.success() && text.contains(said), "{said}: {text}");
        assert!(!text.contains(SECRET.trim()), "{text}");
    };
    check("webhook = \"https://example.com/\"\n", "kinds.quick: `webhook` needs `secret_file`");
    let file = "[webhooks]\nsecret_file = \"DIR/secrets\"\n";
    check(&format!("webhook = \"example.com\"\n{file}"), "kinds.quick: `webhook`: it is no URL");
    check(
        "[webhooks]\nallow_networks = [\"10.0.0.0/8\"]\n",
        "`allow_networks` needs `secret_file`",
    );
    check(&format!("{file}allow_networks = [\"10.0.0.0/33\"]\n"), "`10.0.0.0/33` is no network");
    check("[webhooks]\nsecret_file = \"DIR/nothing\"\n", "No such file");
    check("[webhooks]\nsecret_file = \"DIR/config.toml\"\n", "line 1 is no secret");
}

#[test]
fn a_system_without_certificates_is_named_with_the_remedy() {
    let place = place("[webhooks]\nsecret_file = \"DIR/secrets\"\n");
    let config = place.path("config.toml");
    let mut command = subcommand("serve", ["--check", "--config", config.to_str().unwrap()]);
    let nothing = place.path("no-certificates");
    command.env("SSL_CERT_FILE", &nothing).env("SSL_CERT_DIR", &nothing);
    let outcome = command.output().unwrap();
    let text = String::from_utf8(outcome.stderr).unwrap();
    assert!(!outcome.status.success(), "{text}");
    assert!(text.contains("`ca-certificates`") && !text.contains("panicked"), "{text}");
}

#[test]
fn without_secrets_a_job_with_a_webhook_is_refused() {
    let place = place("");
    let server = Served::start(&place, &[]);
    let refused = ["submit", "quick", "--payload", "1", "--webhook", "https://example.com/"];
    server.run(&refused).expect(4, &["webhooks.secret_file"]);
}
