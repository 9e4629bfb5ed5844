//! Servers that share a store in PostgreSQL: a client that knows only one of them is served by the others too, whichever of them is stopped,
//! killed or suspended.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;

use crate::common::served::Served;
use crate::common::{Outcome, named_pipe};
use keylane_testkit::{LockedTable, PAUSE, PostgresServer, or_skip};
use rustix::process::Signal;
use tempfile::TempDir;

/// Takes the lock of its key, or says that another attempt has it; says at which server it runs; and ends when it is let.
const SHARED: &str = "exec 9>> DIR/lock-$KEYLANE_KEY; flock -n 9 || echo $KEYLANE_KEY >> DIR/overlap; \
                      echo NAME $KEYLANE_KEY $KEYLANE_ATTEMPT > DIR/begun; read word < DIR/gate-NAME; echo $word";

/// The database, and the folders of the servers.
struct Cluster {
    database: PostgresServer,
    folder: TempDir,
}

impl Cluster {
    /// Starts the server with this name. Its first line says where it listens.
    fn server(&self, name: &str) -> Served {
        self.server_with(name, &[])
    }

    fn server_with(&self, name: &str, args: &[&str]) -> Served {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nstore = \"{}\"\ndata_folder = \"{}\"\n\
             slots_per_server = 1\n\
             [kinds.echo]\ncommand = [\"cat\"]\n[kinds.hang]\ncommand = [\"sleep\", \"1000\"]\n\
             [kinds.shared]\nlease = \"2s\"\ncommand = [\"sh\", \"-c\", \"{SHARED}\"]\n\
             [kinds.long]\nlease = \"12h\"\ncommand = [\"sh\", \"-c\", \"{SHARED}\"]\n",
            self.database.address(),
            folder.display(),
        )
        .replace("DIR", self.folder.path().to_str().unwrap())
        .replace("NAME", name);
        let path: PathBuf = folder.join("config.toml");
        fs::write(&path, config).unwrap();
        Served::with_config(&path, args)
    }
}

/// Waits for the next line on standard output with `part` in it.
fn prints(server: &mut Served, part: &str) {
    loop {
        let line = server.line();
        assert!(!line.is_empty(), "{part:?} was never printed");
        if line.contains(part) {
            return;
        }
    }
}

/// Runs a command until the server that it is sent to reaches an owner.
fn until_accepted(server: &Served, words: &[&str]) -> Outcome {
    loop {
        let outcome = server.run(words);
        if outcome.code == 0 {
            return outcome;
        }
        assert!(outcome.stderr.contains("unavailable"), "{outcome:#?}");
    }
}

#[test]
fn a_client_of_one_server_is_served_while_the_others_are_stopped_and_killed() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let first = cluster.server("first");
    let mut front = cluster.server("front");
    prints(&mut front, &format!("the server at http://{} owns the store", first.address));
    let submit = ["submit", "echo", "--key", "k", "--payload", "7", "--wait"];
    front.run(&submit).expect(0, &[]);
    let mut listed = String::new();
    while listed.lines().count() < 3 {
        listed = front.run(&["nodes"]).expect(0, &[]).stdout.clone();
    }
    for (server, role) in [(&first, "owner"), (&front, "waits")] {
        let line = listed.lines().find(|line| line.contains(&server.address)).unwrap();
        assert!(line.contains(role), "{listed}");
    }

    first.kill();
    let answer = until_accepted(&front, &submit);
    answer.expect(0, &["succeeded"]);
    prints(&mut front, "dashboard");

    // The killed one comes back, and waits.
    let mut first = cluster.server("first");
    prints(&mut first, &format!("the server at http://{} owns the store", front.address));
    first.run(&submit).expect(0, &[]);
    front.signal(Signal::TERM);
    front.end().expect(0, &["stopping"]);
    prints(&mut first, "dashboard");
    first.run(&submit).expect(0, &[]);
    let jobs = first.run(&["status"]);
    assert_eq!(jobs.expect(0, &[]).stdout.matches("succeeded").count(), 4, "{jobs:#?}");
}

/// A suspended owner does not answer, and does not close its connections either.
#[test]
fn a_suspended_owner_is_left_by_all_requests_and_ends_when_it_continues() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let mut first = cluster.server("first");
    let front = cluster.server("front");
    let id = until_accepted(&front, &["submit", "hang", "--key", "k"]).stdout;
    let id = id.split_whitespace().last().unwrap().to_owned();
    first.signal(Signal::STOP);
    // It waits at the suspended one until that is no owner any more.
    let cancelled = until_accepted(&front, &["cancel", &id, "--kill"]);
    cancelled.expect(0, &[]);
    until_accepted(&front, &["submit", "echo", "--key", "k", "--wait"]);
    first.signal(Signal::CONT);
    first.hears("another node has taken the store over");
    assert_eq!(first.end().code, 255);
}

/// Lines that commands write when they begin, and the ends that let them end.
struct Commands {
    begun: BufReader<File>,
    gates: Vec<(&'static str, File)>,
}

impl Commands {
    fn new(cluster: &Cluster, servers: &[&'static str]) -> Self {
        let pipe = |name: &str| {
            let path = cluster.folder.path().join(name);
            named_pipe(&path);
            // For reading and writing, so that opening does not wait, and reading finds no end.
            OpenOptions::new().read(true).write(true).open(path).unwrap()
        };
        let gates = servers.iter().map(|name| (*name, pipe(&format!("gate-{name}"))));
        Commands { begun: BufReader::new(pipe("begun")), gates: gates.collect() }
    }

    /// Returns the server, the key and the attempt of the next command that begins.
    fn next(&mut self) -> (String, String, String) {
        let mut line = String::new();
        self.begun.read_line(&mut line).unwrap();
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let [server, key, attempt] = words.try_into().unwrap();
        (server, key, attempt)
    }

    /// Lets a command at a server end with this result.
    fn let_end(&mut self, server: &str, word: &str) {
        let (_, gate) = self.gates.iter_mut().find(|(name, _)| *name == server).unwrap();
        writeln!(gate, "{word}").unwrap();
    }
}

/// Each server runs one command at a time. The one whose server is killed ends with it, and its subtask runs again.
#[test]
fn commands_with_a_lease_run_at_all_servers_and_go_on_while_the_owner_is_killed() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let mut commands = Commands::new(&cluster, &["first", "front"]);
    let first = cluster.server("first");
    let mut front = cluster.server("front");
    prints(&mut front, &format!("the server at http://{} owns the store", first.address));
    let job = |key: &str| {
        let job = front.run(&["submit", "shared", "--key", key]);
        job.expect(0, &[]).stdout.split_whitespace().last().unwrap().to_owned()
    };
    let jobs = [job("a"), job("b")];
    let begun = [commands.next(), commands.next()];
    let mut servers = begun.clone().map(|(server, ..)| server);
    servers.sort();
    assert_eq!(servers, ["first", "front"], "{begun:?}");

    first.kill();
    // That at the other server goes on, and its end counts at the new owner: it is itself.
    commands.let_end("front", "5");
    let again = commands.next();
    let (_, lost, _) = begun.iter().find(|(server, ..)| server == "first").unwrap();
    assert_eq!(again, ("front".into(), lost.clone(), "2".into()));
    commands.let_end("front", "5");
    for id in jobs {
        until_accepted(&front, &["watch", &id]).expect(0, &[]);
    }
    assert!(!cluster.folder.path().join("overlap").exists());
    front.signal(Signal::TERM);
    front.end().expect(0, &["stopping"]);
}

#[test]
fn a_killed_server_that_starts_again_does_not_wait_for_the_end_of_its_own_leases() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let mut commands = Commands::new(&cluster, &["first"]);
    // Its leases have this name, which stays when its port changes.
    let start = || cluster.server_with("first", &["--node-address", "http://127.0.0.1:1"]);
    let first = start();
    let job = until_accepted(&first, &["submit", "long", "--key", "a"]).stdout;
    assert_eq!(commands.next(), ("first".into(), "a".into(), "1".into()));
    first.kill();
    let first = start();
    assert_eq!(commands.next(), ("first".into(), "a".into(), "2".into()));
    commands.let_end("first", "5");
    let id = job.split_whitespace().last().unwrap();
    until_accepted(&first, &["watch", id]).expect(0, &[]);
    assert!(!cluster.folder.path().join("overlap").exists());
}

/// It ended, and gave damage as a possible cause.
#[test]
fn a_server_whose_database_goes_away_while_it_reads_its_store_begins_again() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let mut server = cluster.server("first");
    prints(&mut server, "dashboard");
    server.kill();
    let locked = LockedTable::new(&cluster.database, "keylane.schedule");
    let mut server = thread::scope(|scope| {
        let server = scope.spawn(|| cluster.server("first"));
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while cluster.database.query(end) == "0" {
            thread::sleep(PAUSE);
        }
        locked.release();
        server.join().unwrap()
    });
    server.hears("the start begins again");
    let line = server.line();
    assert!(line.contains("dashboard"), "{line}");
    server.run(&["submit", "echo", "--key", "k", "--wait"]).expect(0, &["succeeded"]);
}

#[test]
fn a_server_that_waits_is_stopped_by_a_signal() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let first = cluster.server("first");
    let front = cluster.server("front");
    until_accepted(&front, &["submit", "echo", "--key", "k"]);
    front.signal(Signal::TERM);
    front.end().expect(0, &["stopping"]);
    first.run(&["submit", "echo", "--key", "k", "--wait"]).expect(0, &[]);
}

/// Attempts under leases go on at the drained server, and their ends count at the next owner.
#[test]
fn a_drained_owner_hands_the_store_over_and_forwards_until_it_is_resumed() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let mut commands = Commands::new(&cluster, &["first", "front"]);
    let first = cluster.server("first");
    let mut front = cluster.server("front");
    let address = |server: &Served| format!("http://{}", server.address);
    prints(&mut front, &format!("the server at {} owns the store", address(&first)));
    let job = |key: &str| {
        let job = until_accepted(&front, &["submit", "shared", "--key", key]);
        job.stdout.split_whitespace().last().unwrap().to_owned()
    };
    let both = |commands: &mut Commands| {
        let mut servers = [commands.next().0, commands.next().0];
        servers.sort();
        servers
    };
    let jobs = [job("a"), job("b")];
    assert_eq!(both(&mut commands), ["first", "front"]);

    let drained = front.run(&["nodes", "drain", &address(&first)]);
    assert!(drained.expect(0, &[]).stdout.contains("drained"), "{drained:?}");
    let waits = |server: &Served| {
        let listed = until_accepted(server, &["nodes"]).stdout;
        let line = listed.lines().find(|line| line.contains(&first.address)).unwrap().to_owned();
        line.contains(" drained") && !line.contains("owner")
    };
    while !waits(&front) {
        std::thread::sleep(PAUSE);
    }
    for server in ["first", "front"] {
        commands.let_end(server, "5");
    }
    for id in &jobs {
        until_accepted(&first, &["watch", id]).expect(0, &[]);
    }
    // Nothing more runs at the drained one.
    let jobs = [job("c"), job("d")];
    for _ in &jobs {
        let (server, _, attempt) = commands.next();
        assert_eq!((&*server, &*attempt), ("front", "1"));
        commands.let_end("front", "5");
    }
    for id in &jobs {
        first.run(&["watch", id]).expect(0, &[]);
    }
    let last = first.run(&["nodes", "drain", &address(&front)]);
    last.expect(4, &["no other server that is not drained"]);
    first
        .run(&["nodes", "drain", "http://a"])
        .expect(4, &["there is no server with the address `http://a`"]);

    // It stays drained when it starts again.
    first.signal(Signal::TERM);
    first.end().expect(0, &["stopping"]);
    let mut first = cluster.server("first");
    prints(&mut first, &format!("the server at {} owns the store", address(&front)));
    let listed = first.run(&["nodes"]).expect(0, &[]).stdout.clone();
    let line = listed.lines().find(|line| line.contains(&first.address)).unwrap();
    assert!(line.contains(" drained"), "{listed}");
    let resumed = first.run(&["nodes", "resume", &address(&first)]);
    assert!(resumed.expect(0, &[]).stdout.contains("waits"), "{resumed:?}");
    let jobs = [job("e"), job("f")];
    assert_eq!(both(&mut commands), ["first", "front"]);
    for server in ["first", "front"] {
        commands.let_end(server, "5");
    }
    for id in &jobs {
        first.run(&["watch", id]).expect(0, &[]);
    }
    assert!(!cluster.folder.path().join("overlap").exists());
}

/// An attempt without a lease belongs to the server that calls its handler: it ends there, and its subtask is tried again at the next owner.
#[test]
fn a_drained_owner_ends_attempts_without_a_lease_that_take_too_long() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let mut first = cluster.server_with("first", &["--shutdown-timeout", "100ms"]);
    let mut front = cluster.server("front");
    let address = format!("http://{}", first.address);
    prints(&mut front, &format!("the server at {address} owns the store"));
    let job = front.run(&["submit", "hang", "--key", "k", "--attempts", "2"]);
    let job = job.expect(0, &[]).stdout.split_whitespace().last().unwrap().to_owned();
    let runs = |server: &Served| {
        let shown = until_accepted(server, &["status", &job, "--json"]).stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown["counts"]["running"] == 1
    };
    while !runs(&front) {
        std::thread::sleep(PAUSE);
    }
    front.run(&["nodes", "drain", &address]).expect(0, &[]);
    prints(&mut front, "dashboard");
    prints(&mut first, &format!("the server at http://{} owns the store", front.address));
    while !runs(&front) {
        std::thread::sleep(PAUSE);
    }
    first.run(&["cancel", &job, "--kill"]).expect(0, &[]);
    first.run(&["submit", "echo", "--key", "k", "--wait"]).expect(0, &[]);
    first.signal(Signal::TERM);
    first.end().expect(0, &["drained", "stopping"]);
}

/// A response that its client reads slowly has the store open for as long as it lasts.
#[test]
fn a_drained_owner_gives_the_store_up_although_a_client_still_reads_a_response() {
    /// More than the buffers of a connection take.
    const RESULTS: usize = 60;
    const RESULT: usize = 200_000;
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let mut first = cluster.server("first");
    let mut front = cluster.server("front");
    let lines = cluster.folder.path().join("lines");
    fs::write(&lines, format!("{}\n", "Q".repeat(RESULT)).repeat(RESULTS)).unwrap();
    let address = format!("http://{}", first.address);
    prints(&mut front, &format!("the server at {address} owns the store"));
    let job = front.submit(&["echo", "--lines", lines.to_str().unwrap()]);
    front.run(&["watch", &job]).expect(0, &[]);

    let mut slow = TcpStream::connect(&first.address).unwrap();
    let head = "host: localhost\r\naccept: application/x-ndjson\r\nconnection: close\r\n\r\n";
    write!(slow, "GET /v1/jobs/{job}/results HTTP/1.1\r\n{head}").unwrap();
    let mut begun = [0; 1000];
    slow.read_exact(&mut begun).unwrap();
    front.run(&["nodes", "drain", &address]).expect(0, &[]);
    prints(&mut front, "dashboard");
    prints(&mut first, &format!("the server at http://{} owns the store", front.address));
    first.run(&["submit", "echo", "--key", "k", "--wait"]).expect(0, &[]);
    first.run(&["nodes", "resume", &address]).expect(0, &[]);
    front.run(&["nodes", "drain", &format!("http://{}", front.address)]).expect(0, &[]);
    prints(&mut first, "dashboard");
    first.run(&["submit", "echo", "--key", "k", "--wait"]).expect(0, &[]);

    // The response is whole.
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    let of_results = begun.iter().chain(&rest).filter(|&&byte| byte == b'Q').count();
    assert_eq!(of_results, RESULTS * RESULT);
}
