//! `keylane serve` stops when it is told to, as well as it can, and loses nothing however it ends.

use std::io::{BufRead, Write};

use crate::common::served::{Place, Served};
use rustix::process::Signal;
use serde_json::Value;

/// Submits two subtasks of one key, and waits until the first has begun.
fn submit_two(kind: &str, place: &mut Place, server: &Served) -> String {
    let lines = place.path("lines");
    std::fs::write(&lines, "{\"key\":\"k\",\"payload\":1}\n{\"key\":\"k\",\"payload\":2}\n")
        .unwrap();
    let id = server.submit(&[kind, "--subtasks", lines.to_str().unwrap()]);
    assert_eq!(place.next(), "0 1");
    id
}

/// Lets what waits end, and returns the results of the job with the attempts that they took.
#[track_caller]
fn results(server: &Served, id: &str) -> Vec<(Value, u64)> {
    server.run(&["watch", id]).expect(0, &["succeeded"]);
    let results = server.run(&["results", id]);
    let lines = results.expect(0, &[]).stdout.lines().map(serde_json::from_str::<Value>);
    lines
        .map(Result::unwrap)
        .map(|line| (line["result"].clone(), line["attempt"].as_u64().unwrap()))
        .collect()
}

#[test]
fn the_first_sigterm_lets_what_runs_end_and_begins_nothing() {
    let mut place = Place::new("");
    let mut server = Served::start(&place, &[]);
    let id = submit_two("wait", &mut place, &server);
    server.signal(Signal::TERM);
    server.hears("stopping");
    place.let_end("slowly");
    let ended = server.end();
    ended.expect(0, &[]);
    assert!(!ended.stderr.contains("at once"), "{}", ended.stderr);
    place.wait_until_nobody_is_left();

    // What ended is done, and what had not begun begins now.
    let server = Served::start(&place, &[]);
    assert_eq!(place.next(), "1 1");
    place.let_end("later");
    assert_eq!(results(&server, &id), [("slowly".into(), 1), ("later".into(), 1)]);
}

#[test]
fn followers_are_disconnected_at_shutdown() {
    let mut place = Place::new("");
    let server = Served::start(&place, &[]);
    let id = submit_two("wait", &mut place, &server);
    let mut events = server.ask(&format!("/v1/jobs/{id}/events"));
    let mut line = String::new();
    while !line.contains("job_changed") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "nothing was said of the job");
    }
    server.signal(Signal::TERM);
    // The stream ends while the command still runs.
    std::io::read_to_string(events).unwrap();
    place.let_end("slowly");
    server.end().expect(0, &[]);
}

/// A server that starts again does what was broken off a second time, and then what is behind it.
fn both_are_done_from_the_first_on(place: &mut Place, id: &str) {
    let server = Served::start(place, &[]);
    assert_eq!(place.next(), "0 2");
    place.let_end("again");
    assert_eq!(place.next(), "1 1");
    place.let_end("then");
    assert_eq!(results(&server, id), [("again".into(), 2), ("then".into(), 1)]);
}

#[test]
fn the_second_signal_ends_it_at_once_with_all_that_runs() {
    // By whichever signal it is asked, the shell learns of that one.
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130)] {
        let mut place = Place::new("");
        let mut server = Served::start(&place, &[]);
        let id = submit_two("wait", &mut place, &server);
        server.signal(signal);
        server.hears("again to stop at once");
        server.signal_until_it_ends(signal);
        server.end().expect(code, &["stopped at once"]);
        // No command goes on behind its back, for it will be tried again.
        place.wait_until_nobody_is_left();
        both_are_done_from_the_first_on(&mut place, &id);
    }
}

/// `timeout 60 keylane serve` stopped it at once: that command sends its signal twice.
#[test]
fn two_signals_in_a_row_are_one_request() {
    let mut place = Place::new("");
    let mut server = Served::start(&place, &[]);
    let id = submit_two("wait", &mut place, &server);
    // Both wait for it when it continues. Signals of one kind would be one.
    server.signal(Signal::STOP);
    server.signal(Signal::TERM);
    server.signal(Signal::INT);
    server.signal(Signal::CONT);
    server.hears("again to stop at once");
    place.let_end("well");
    let outcome = server.end();
    // By the one that it has seen first.
    assert!([0, 130].contains(&outcome.code), "{outcome:?}");
    assert!(!outcome.stderr.contains("stopped at once"), "{outcome:?}");
    let server = Served::start(&place, &[]);
    assert_eq!(place.next(), "1 1");
    place.let_end("then");
    assert_eq!(results(&server, &id), [("well".into(), 1), ("then".into(), 1)]);
}

#[test]
fn subtasks_beyond_the_shutdown_timeout_are_ended_and_retried() {
    let mut place = Place::new("");
    let server = Served::start(&place, &["--shutdown-timeout", "10ms"]);
    let id = submit_two("wait", &mut place, &server);
    server.signal(Signal::TERM);
    server.end().expect(0, &["stopping"]);
    place.wait_until_nobody_is_left();
    both_are_done_from_the_first_on(&mut place, &id);
}

#[test]
fn after_kill_nine_it_goes_on_and_has_every_job_once() {
    let mut place = Place::new("");
    let server = Served::start(&place, &[]);
    let id = submit_two("alone", &mut place, &server);
    place.let_end("before");
    assert_eq!(place.next(), "1 1");
    let once = ["alone", "--payload", "3", "--key", "k", "--idempotency-key", "once"];
    let third = server.submit(&once);
    // Marks of attempts are written behind; this is answered when all before it is on the disk.
    server.run(&["keys", "resume", "k"]).expect(0, &[]);
    server.kill();
    // Its guard ends the command.
    place.wait_until_nobody_is_left();

    let server = Served::start(&place, &[]);
    assert_eq!(place.next(), "1 2");
    // A client that does not know whether its request arrived repeats it, and gets the same job.
    assert_eq!(server.submit(&once), third);
    place.let_end("after");
    assert_eq!(place.next(), "0 1");
    place.let_end("third");
    assert_eq!(results(&server, &id), [("before".into(), 1), ("after".into(), 2)]);
    assert_eq!(results(&server, &third), [("third".into(), 1)]);
}

/// Sends a request with these headers, each with its end of line, and this body. Returns the whole answer.
fn raw(server: &Served, head: &str, headers: &str, body: &str) -> String {
    let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    std::io::read_to_string(stream).unwrap()
}

/// The status and the body of an answer to a request with this body.
fn ask(server: &Served, method: &str, path: &str, body: &str) -> (u16, String) {
    let answer = raw(server, &format!("{method} {path}"), "", body);
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
}

/// The id of the next lease of the kind `remote`.
fn lease(server: &Served) -> String {
    let asked = r#"{"kinds":["remote"],"wait_ms":60000}"#;
    let (status, claimed) = ask(server, "POST", "/v1/leases", asked);
    assert_eq!(status, 200, "{claimed}");
    let claimed: Value = serde_json::from_str(&claimed).unwrap();
    claimed["leases"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn while_it_stops_remote_workers_can_end_their_leases() {
    let place = Place::new("[kinds.remote]\nlease = \"30s\"\n");
    let mut server = Served::start(&place, &[]);
    let id = server.submit(&["remote", "--payload", "1"]);
    let lease = lease(&server);
    server.signal(Signal::TERM);
    server.hears("stopping");
    assert_eq!(ask(&server, "GET", "/readyz", "").0, 503);
    assert_eq!(ask(&server, "POST", "/v1/jobs", r#"{"kind":"remote","payload":2}"#).0, 503);
    assert_eq!(ask(&server, "POST", "/v1/leases", r#"{"kinds":["remote"]}"#).0, 503);
    assert_eq!(ask(&server, "POST", &format!("/v1/leases/{lease}/heartbeat"), "").0, 200);
    let done = ask(&server, "POST", &format!("/v1/leases/{lease}/complete"), r#"{"result":7}"#);
    assert_eq!(done.0, 204, "{}", done.1);
    // With that nothing runs any more, and it need not wait any longer.
    server.end().expect(0, &[]);
    let server = Served::start(&place, &[]);
    assert_eq!(results(&server, &id), [(7.into(), 1)]);
}

#[test]
fn a_lease_that_nothing_was_said_of_goes_on_after_the_next_start() {
    let place = Place::new("[kinds.remote]\nlease = \"30s\"\n");
    let server = Served::start(&place, &["--shutdown-timeout", "10ms"]);
    let id = server.submit(&["remote", "--payload", "1"]);
    let lease = lease(&server);
    server.signal(Signal::TERM);
    server.end().expect(0, &["stopping"]);
    let server = Served::start(&place, &[]);
    server.kill();
    let server = Served::start(&place, &[]);
    let done = ask(&server, "POST", &format!("/v1/leases/{lease}/complete"), r#"{"result":7}"#);
    assert_eq!(done.0, 204, "{}", done.1);
    assert_eq!(results(&server, &id), [(7.into(), 1)]);
}

#[test]
fn a_hangup_reads_tokens_and_kinds_anew_and_ends_nothing() {
    let mut place = Place::new("");
    let tokens = place.path("tokens");
    let write_tokens = |text: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(&tokens, text).unwrap();
        std::fs::set_permissions(&tokens, PermissionsExt::from_mode(0o600)).unwrap();
    };
    let path = place.path("config.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let with_tokens = config.replacen(
        "[server]",
        &format!("[server]\ntokens = {:?}", tokens.to_str().unwrap()),
        1,
    );
    write_tokens("first admin plain:the-first-token-of-all\n");
    std::fs::write(&path, &with_tokens).unwrap();
    let mut server = Served::start(&place, &[]);
    let asked = |server: &Served, token: &str, head: &str, body: &str| {
        let headers = format!("authorization: Bearer {token}\r\n");
        raw(server, head, &headers, body)
    };
    let get =
        |server: &Served, token: &str, path: &str| asked(server, token, &format!("GET {path}"), "");
    let post =
        |server: &Served, token: &str, body: &str| asked(server, token, "POST /v1/jobs", body);
    let (old, new) = ("the-first-token-of-all", "another-token-instead");
    assert!(post(&server, old, r#"{"kind":"alone","payload":1}"#).contains(" 202 "));
    assert_eq!(place.next(), "0 1");
    assert!(post(&server, old, r#"{"kind":"late","payload":1}"#).contains(" 422 "));

    write_tokens("second admin plain:another-token-instead\n");
    let late = "\n[kinds.late]\ncommand = [\"true\"]\n";
    std::fs::write(&path, format!("{with_tokens}{late}")).unwrap();
    server.signal(Signal::HUP);
    server.hears("reloaded");
    assert!(get(&server, old, "/v1/kinds").contains(" 401 "));
    assert!(get(&server, new, "/v1/kinds").contains("\"late\""));
    assert!(post(&server, new, r#"{"kind":"late","payload":1}"#).contains(" 202 "));

    // What is wrong changes nothing.
    std::fs::write(&path, format!("{with_tokens}\n[kinds.wrong]\n")).unwrap();
    server.signal(Signal::HUP);
    server.hears("not reloaded");
    assert!(get(&server, new, "/v1/kinds").contains("\"late\""));

    // A kind that is gone takes no jobs, and those that run of it end.
    let without = with_tokens.replace("[kinds.alone]", "[kinds.renamed]");
    std::fs::write(&path, without).unwrap();
    server.signal(Signal::HUP);
    server.hears("reloaded");
    assert!(post(&server, new, r#"{"kind":"alone","payload":2}"#).contains(" 422 "));
    place.let_end("done");
    server.signal(Signal::TERM);
    server.end().expect(0, &[]);
}

/// Returns whether a client that trusts only this certificate gets an answer.
fn is_trusted(server: &Served, papers: &std::path::Path, name: &str) -> bool {
    let pem = std::fs::read(papers.join(format!("{name}-cert.pem"))).unwrap();
    let address: std::net::SocketAddr = server.address.parse().unwrap();
    // An error says that an earlier call has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&pem).unwrap()])
        .resolve("keylane.test", address)
        .build()
        .unwrap();
    let url = format!("https://keylane.test:{}/livez", address.port());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match runtime.block_on(client.get(url).send()) {
        Ok(answer) => answer.status() == 200,
        Err(error) => {
            assert!(error.is_connect(), "{error:?}");
            false
        }
    }
}

#[test]
fn a_hangup_reads_certificates_anew_and_ends_nothing() {
    let mut place = Place::new("");
    let papers =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../keylane-service/tests/papers");
    let install = |name: &str| {
        for what in ["cert", "key"] {
            let to = place.path(&format!("{what}.pem"));
            std::fs::copy(papers.join(format!("{name}-{what}.pem")), to).unwrap();
        }
    };
    let path = place.path("config.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| place.path(name));
    let tls = format!(
        "[server]\nhosts = [\"keylane.test\"]\ntls_certificates = {certificate:?}\ntls_key = {key:?}"
    );
    std::fs::write(&path, config.replacen("[server]", &tls, 1)).unwrap();
    install("own");
    let mut server = Served::start(&place, &[]);
    assert!(is_trusted(&server, &papers, "own") && !is_trusted(&server, &papers, "other"));

    install("other");
    server.signal(Signal::HUP);
    server.hears("reloaded");
    assert!(is_trusted(&server, &papers, "other") && !is_trusted(&server, &papers, "own"));

    // Half of a certificate changes nothing.
    std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    server.signal(Signal::HUP);
    server.hears("not reloaded");
    assert!(is_trusted(&server, &papers, "other"));
    server.signal(Signal::TERM);
    server.end().expect(0, &[]);
    place.wait_until_nobody_is_left();
}
