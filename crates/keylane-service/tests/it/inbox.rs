//! Jobs that an application submits by SQL, in a transaction of its own: with it they are accepted, once and in order, and without it they never
//! were there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use crate::common::{Client, Log, builder_with, serve, settings};
use keylane_service::http::HttpServer;
use keylane_service::store::{PostgresSettings, StoreSettings};
use keylane_service::{Service, ServiceSettings, SubmissionLimits};
use keylane_testkit::{PostgresServer, or_skip};
use tempfile::TempDir;

/// A service with its store in a database.
struct Served {
    service: Service,
    _server: HttpServer,
    client: Client,
    log: Log,
    _folder: TempDir,
}

impl Served {
    async fn start(database: &PostgresServer) -> Self {
        Self::start_with(database, |settings| settings).await
    }

    async fn start_with(
        database: &PostgresServer,
        change: impl FnOnce(ServiceSettings) -> ServiceSettings,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::default();
        let postgres: PostgresSettings = database.address().parse().unwrap();
        let store = StoreSettings { postgres: Some(postgres), ..StoreSettings::default() };
        let settings = ServiceSettings { store, ..settings(folder.path()) };
        let service = builder_with(change(settings), &log).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Served { service, _server: server, client, log, _folder: folder }
    }

    /// Waits until the job with this name has ended, and returns its state.
    async fn end_of(&self, name: &str) -> String {
        while self.client.get(&format!("/v1/jobs/{name}")).await.status == 404 {}
        self.client.wait(name).await["state"].as_str().unwrap().to_owned()
    }
}

/// A session of an application, which executes statements one after another.
struct Session {
    psql: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Session {
    fn new(database: &PostgresServer) -> Self {
        let mut psql = database.psql();
        psql.arg("-XAtq").args(["-v", "ON_ERROR_STOP=0"]).arg(database.address());
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut psql = psql.spawn().unwrap();
        let stdin = psql.stdin.take().unwrap();
        let stdout = BufReader::new(psql.stdout.take().unwrap());
        Session { psql, stdin, stdout }
    }

    /// Executes statements, and returns the lines that they print.
    fn run(&mut self, sql: &str) -> Vec<String> {
        writeln!(self.stdin, "{sql};\n\\echo that is all").unwrap();
        let lines = (&mut self.stdout).lines().map(Result::unwrap);
        lines.take_while(|line| line != "that is all").collect()
    }

    /// Submits a job with this payload to the key `k`, and returns its name.
    fn submit(&mut self, payload: u32) -> String {
        self.run(&format!("SELECT keylane.submit('echo', '{payload}', 'k')")).remove(0)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_accepted_with_the_transaction_that_submits_it_and_not_without() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let served = Served::start(&database).await;
    let mut session = Session::new(&database);
    session.run("CREATE TABLE orders (number bigint)");
    session.run("BEGIN");
    session.run("INSERT INTO orders VALUES (1)");
    let gone = session.submit(1);
    session.run("ROLLBACK");
    session.run("BEGIN");
    let first = session.submit(2);
    session.run("SAVEPOINT here");
    session.submit(3);
    session.run("ROLLBACK TO SAVEPOINT here");
    let last = session.submit(4);
    session.run("INSERT INTO orders VALUES (2)");
    session.run("COMMIT");
    assert_eq!(served.end_of(&last).await, "succeeded");
    assert_eq!(served.end_of(&first).await, "succeeded");
    assert_eq!(served.log.lines(), ["k 2", "k 4"]);
    assert_eq!(served.client.get(&format!("/v1/jobs/{gone}")).await.status, 404);
    assert_eq!(session.run("SELECT number FROM orders"), ["2"]);
    assert_eq!(session.run("SELECT count(*) FROM keylane.inbox"), ["0"]);
}

/// A transaction that stays open delays no other one, and keeps its own jobs.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_come_in_the_order_of_commits_and_calls_however_long_a_transaction_takes() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let served = Served::start(&database).await;
    let (mut slow, mut quick) = (Session::new(&database), Session::new(&database));
    slow.run("BEGIN");
    let early = slow.submit(0);
    let mut last = String::new();
    for payload in 1..=40 {
        last = quick.submit(payload);
    }
    assert_eq!(served.end_of(&last).await, "succeeded");
    assert_eq!(served.client.get(&format!("/v1/jobs/{early}")).await.status, 404);
    let late = slow.submit(41);
    slow.run("COMMIT");
    assert_eq!(served.end_of(&late).await, "succeeded");
    let expected = (1..=40).chain([0, 41]).map(|payload| format!("k {payload}"));
    assert_eq!(served.log.lines(), expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_can_check_is_refused_to_the_caller() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let _served = Served::start(&database).await;
    for (call, named) in [
        ("submit_job('[1]')", "a job is a JSON object"),
        ("submit_job(NULL)", "a job is a JSON object"),
        ("submit_job('{}')", "names its kind"),
        ("submit(NULL)", "names its kind"),
        ("submit('echo', options => '3')", "options are a JSON object"),
        ("submit('echo', to_json(repeat('x', 2000000)))", "at most 1048576 bytes"),
    ] {
        let refused = database.try_query(&format!("SELECT keylane.{call}")).unwrap_err();
        assert!(refused.contains(named), "{call}: {refused}");
    }
    // Only roles that were granted it can submit, and they can do nothing else.
    let _ = database.query(
        "CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; GRANT USAGE ON SCHEMA keylane TO app, other;
         GRANT EXECUTE ON FUNCTION keylane.submit(text, json, text, json) TO app",
    );
    let as_role = |role: &str, sql: &str| database.try_query(&format!("SET ROLE {role}; {sql}"));
    assert!(as_role("app", "SELECT keylane.submit('echo')").unwrap().starts_with("sql_"));
    for (role, sql) in [
        ("other", "SELECT keylane.submit('echo')"),
        ("app", "SELECT * FROM keylane.inbox"),
        ("app", "SELECT keylane.submit_job('{\"kind\":\"echo\",\"payload\":1}')"),
    ] {
        assert!(as_role(role, sql).unwrap_err().contains("permission denied"), "{role}: {sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_wrong_is_kept_with_the_reason_and_stops_no_other_one() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let served = Served::start(&database).await;
    let mut session = Session::new(&database);
    session.run("BEGIN");
    session.submit(1);
    for wrong in [
        r#"{"kind":"nothing","payload":1}"#,
        r#"{"kind":"echo","payload":1,"payload":2}"#,
        r#"{"kind":"echo","payload":1,"colour":"red"}"#,
        r#"{"kind":"echo","payload":1,"after":["job_of_nobody"]}"#,
    ] {
        session.run(&format!("SELECT keylane.submit_job('{wrong}')"));
    }
    let last = session.submit(2);
    session.run("COMMIT");
    assert_eq!(served.end_of(&last).await, "succeeded");
    assert_eq!(served.log.lines(), ["k 1", "k 2"]);
    let refused =
        session.run("SELECT convert_from(why, 'UTF8') FROM keylane.inbox_refused ORDER BY id");
    for (why, named) in refused.iter().zip(["nothing", "payload", "colour", "job_of_nobody"]) {
        assert!(why.contains(named), "{why}");
    }
    assert_eq!(refused.len(), 4, "{refused:?}");
    assert!(served.client.get("/metrics").await.text.contains("keylane_inbox_refused_total 4"));
}

/// Jobs beyond a limit wait in the inbox, in their order.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_do_not_fit_wait_for_room() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let served = Served::start_with(&database, |settings| ServiceSettings {
        bounds: SubmissionLimits { waiting_subtasks: 2, ..settings.bounds },
        ..settings
    })
    .await;
    let mut session = Session::new(&database);
    session.run("BEGIN");
    let names: Vec<String> = (1..=6).map(|payload| session.submit(payload)).collect();
    session.run("COMMIT");
    for name in &names {
        assert_eq!(served.end_of(name).await, "succeeded");
    }
    let expected = (1..=6).map(|payload| format!("k {payload}"));
    assert_eq!(served.log.lines(), expected.collect::<Vec<_>>());
}

/// The database is killed while jobs come in and are accepted: what was committed is accepted once.
#[tokio::test(flavor = "multi_thread")]
async fn each_committed_job_is_accepted_once_although_the_database_is_killed() {
    let Some(mut database) = or_skip(PostgresServer::start_with(&["fsync=on"])) else { return };
    let served = Served::start(&database).await;
    let mut names = Vec::new();
    for round in 0..4 {
        let submit = format!(
            "SELECT keylane.submit('echo', to_json({round} * 200 + one), 'k') FROM generate_series(0, 199) AS one"
        );
        names.extend(database.query(&submit).lines().map(str::to_owned));
        database.kill();
        database.restart();
    }
    for name in &names {
        assert_eq!(served.end_of(name).await, "succeeded");
    }
    let expected = (0..800).map(|payload| format!("k {payload}"));
    assert_eq!(served.log.lines(), expected.collect::<Vec<_>>());
    served.service.stop(Duration::from_secs(30)).await;
}
