//! A backup of a running service has all that was acknowledged before it, and scheduled ones come and go in time.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keylane_service::http::{self, HttpServer, Tokens};
use keylane_service::store::Store;
use keylane_service::{BackupSchedule, ManualClock, Service, ServiceSettings};

use crate::common::{Client, Log, builder_with, serve, serve_with, settings};

const HOUR: Duration = Duration::from_secs(3600);

/// 2026-05-04T10:00:00Z.
const START: u64 = 1_777_888_800_000;

const ADMIN: [(&str, &str); 1] = [("authorization", "Bearer the-token-of-admin-here")];

async fn start(settings: ServiceSettings) -> (Service, HttpServer, Client) {
    let service = builder_with(settings, &Log::default()).start().await.unwrap();
    let (server, client) = serve(&service).await;
    (service, server, client)
}

async fn stop(service: Service, server: HttpServer) {
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}

/// Requests a copy and writes it to a file.
async fn copy(client: &Client, to: &Path) {
    let request = client.http.post(format!("http://{}/v1/backup", client.address));
    let answer = request.send().await.unwrap().error_for_status().unwrap();
    assert_eq!(answer.headers()["content-type"], "application/vnd.sqlite3");
    fs::write(to, answer.bytes().await.unwrap()).unwrap();
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_all_jobs_that_were_acknowledged_before_it_and_can_be_started() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(settings(folder.path())).await;
    let before = files(folder.path());
    let mut acknowledged = Vec::new();
    let writes = {
        // Jobs that come while the copies are made.
        let client = client.clone();
        tokio::spawn(async move {
            loop {
                client.submit(r#"{"kind":"echo","key":"k","payload":"while"}"#).await;
            }
        })
    };
    for round in 0..5 {
        for _ in 0..20 {
            acknowledged.push(client.submit(r#"{"kind":"hang","key":"h","payload":1}"#).await);
        }
        let path = folder.path().join(format!("copy-{round}"));
        copy(&client, &path).await;
        let report = Store::inspect(&path).unwrap();
        assert!(report.damage.is_empty() && report.jobs >= acknowledged.len() as u64, "{report:?}");
    }
    writes.abort();
    let left: Vec<_> = files(folder.path())
        .into_iter()
        .filter(|name| !name.starts_with("copy-") && !before.contains(name))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    stop(service, server).await;

    let place = tempfile::tempdir().unwrap();
    fs::copy(folder.path().join("copy-4"), place.path().join("store")).unwrap();
    let (service, server, client) = start(settings(place.path())).await;
    for id in &acknowledged {
        client.get(&format!("/v1/jobs/{id}")).await.expect(200);
    }
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_administrator_gets_a_copy_and_the_audit_log_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder_with(settings(folder.path()), &Log::default()).start().await.unwrap();
    let roles = ["read", "submit", "worker", "operate", "admin"];
    let lines = roles.map(|role| format!("{role} {role} plain:the-token-of-{role}-here\n"));
    let tokens = Tokens::parse(&lines.concat()).unwrap();
    let (server, client) =
        serve_with(&service, http::HttpSettings { tokens, ..Default::default() }).await;
    client.post("/v1/backup", "").await.expect(401);
    for role in &roles[..4] {
        let token = format!("Bearer the-token-of-{role}-here");
        client.send("POST", "/v1/backup", &[("authorization", &token)], "").await.expect(403);
    }
    client.send("GET", "/v1/backup", &ADMIN, "").await.expect(405);
    let request = client.http.post(format!("http://{}/v1/backup", client.address));
    let answer = request.header(ADMIN[0].0, ADMIN[0].1).send().await.unwrap();
    let length = answer.headers()["content-length"].to_str().unwrap().parse::<usize>().unwrap();
    assert_eq!((answer.status().as_u16(), answer.bytes().await.unwrap().len()), (200, length));
    let log = client.send("GET", "/v1/audit?what=store.backup&who=admin", &ADMIN, "").await;
    let log = log.expect(200).json();
    assert_eq!(log["items"].as_array().unwrap().len(), 1, "{log}");
    assert_eq!(log["items"][0]["outcome"], "done", "{log}");
    stop(service, server).await;
}

/// A service that makes a copy each hour and keeps two, at this time.
fn hourly(folder: &Path, copies: &Path, now: u64) -> ServiceSettings {
    let schedule = BackupSchedule {
        folder: copies.to_owned(),
        every: HOUR,
        keep: NonZeroUsize::new(2).unwrap(),
    };
    let clock = Some(ManualClock::at(now));
    ServiceSettings { backups: Some(schedule), clock, ..settings(folder) }
}

/// Waits until the metrics have this line.
async fn until(client: &Client, line: &str) {
    loop {
        let metrics = client.get("/metrics").await.expect(200).text;
        if metrics.lines().any(|found| found == line) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_copies_are_made_when_they_are_due_and_the_oldest_go() {
    let (folder, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = |count| format!("keylane_backups_total{{outcome=\"written\"}} {count}");
    let hour = 3_600_000;
    let names = ["20260504T100000", "20260504T110000", "20260504T120000"]
        .map(|time| format!("keylane-{time}Z.db"));
    for (passed, expected) in [(0, &names[..1]), (1, &names[..2]), (2, &names[1..])] {
        let settings = hourly(folder.path(), copies.path(), START + passed * hour);
        let (service, server, client) = start(settings).await;
        client.submit(r#"{"kind":"echo","payload":1}"#).await;
        until(&client, &written(1)).await;
        assert_eq!(files(copies.path()), expected);
        stop(service, server).await;
    }
    for name in &names[1..] {
        assert!(Store::inspect(copies.path().join(name)).unwrap().damage.is_empty());
    }
    // Not due yet: the newest copy of an earlier process counts.
    let settings = hourly(folder.path(), copies.path(), START + 2 * hour + hour / 2);
    let (service, server, client) = start(settings).await;
    let newest = (START + 2 * hour) / 1000;
    until(&client, &format!("keylane_backup_newest_timestamp_seconds {newest}")).await;
    until(&client, &written(0)).await;
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_copy_that_fails_is_counted_and_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let missing: PathBuf = folder.path().join("unmounted");
    let (service, server, client) = start(hourly(folder.path(), &missing, START)).await;
    until(&client, "keylane_backups_total{outcome=\"failed\"} 1").await;
    let id = client.submit(r#"{"kind":"echo","payload":1}"#).await;
    assert_eq!(client.wait(&id).await["state"], "succeeded");
    assert!(!missing.exists());
    stop(service, server).await;
}
