//! A subtask that takes the server down with it fails when its attempts are used up, wherever it stands and whatever is
//! done with the store between the crash and the next start.

use std::path::Path;

use crate::common::child::{self, Child};
use keylane_service::handle::{Attempt, FunctionHandler};
use keylane_service::store::Store;
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::Value;

const ATTEMPTS: u32 = 3;

/// The server, if this process was started to be one.
#[tokio::test(flavor = "multi_thread")]
async fn server() {
    let Some(folder) = child::folder() else { return };
    let poison = FunctionHandler::new(|attempt: Attempt| async move {
        if crate::common::text(&attempt) == "\"poison\"" {
            std::process::abort();
        }
        Ok(None)
    });
    let kind = Kind { attempts: ATTEMPTS, ..Kind::new(poison) };
    let settings = ServiceSettings { slots: 1, ..ServiceSettings::new(folder.join("store")) };
    let service = Service::builder(settings).kind("poison", kind).start().await.unwrap();
    child::serve(&service, &folder).await;
}

/// Opens the store and closes it, as a backup does, when the server is gone.
fn look_into(folder: &Path, number: u32) {
    let (store, recovered) =
        Store::open(folder.join("store"), &keylane_service::store::StoreSettings::default())
            .unwrap();
    assert!(!recovered.was_clean());
    store.backup(folder.join(format!("backup {number}"))).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subtask_that_kills_the_server_uses_up_its_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let http = child::client();
    let mut server = Child::start("poison::server", folder.path(), &[]);
    let address = server.address().await;
    let job = r#"{"kind":"poison","subtasks":[{"key":"k","payload":1},{"key":"k","payload":"poison"},{"key":"k","payload":2}]}"#;
    // So that the job is known before it runs.
    let pause = http.post(format!("http://{address}/v1/keys/k/pause")).body("").send();
    pause.await.unwrap();
    let accepted = http.post(format!("http://{address}/v1/jobs")).body(job);
    let accepted = accepted.header("content-type", "application/json").send().await.unwrap();
    let accepted: Value = serde_json::from_str(&accepted.text().await.unwrap()).unwrap();
    let id = accepted["id"].as_str().unwrap().to_owned();
    // The first end need not have been counted: its mark may not have been on the disk.
    let mut crashes = 0;
    let mut is_resumed = false;
    let over = loop {
        if server.has_ended() {
            crashes += 1;
            assert!(crashes <= ATTEMPTS + 1, "it is tried for ever");
            look_into(folder.path(), crashes);
            server.restart();
        }
        // Repeated until it is answered: the server may end before that is on the disk.
        is_resumed = is_resumed || resume(&http, &mut server).await;
        let Some(job) = job_of(&http, &mut server, &id).await else { continue };
        if job["state"] == "failed" {
            break job;
        }
    };
    assert!(crashes >= ATTEMPTS, "{crashes}");
    assert_eq!((&over["counts"]["succeeded"], &over["counts"]["failed"]), (&2.into(), &1.into()));
}

/// Resumes the key, and returns whether the server has answered.
async fn resume(http: &reqwest::Client, server: &mut Child) -> bool {
    let Some(address) = server.address_or_end().await else { return false };
    let resumed = http.post(format!("http://{address}/v1/keys/k/resume")).body("").send().await;
    resumed.is_ok_and(|resumed| resumed.status() == 200)
}

/// The job, if the server is there to say how it is.
async fn job_of(http: &reqwest::Client, server: &mut Child, id: &str) -> Option<Value> {
    let address = server.address_or_end().await?;
    let answer = http.get(format!("http://{address}/v1/jobs/{id}")).send().await.ok()?;
    serde_json::from_str(&answer.text().await.ok()?).ok()
}
