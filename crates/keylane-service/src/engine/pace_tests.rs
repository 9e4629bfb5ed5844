//! Tests of the remaining time, with a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::audit::{AuditedRequest, OperatorAction};
use crate::engine::clock::SteadyClock;
use crate::engine::control::KeyCommand;
use crate::engine::engine_dependencies::Outside;
use crate::engine::{Core, LeaseReport, ServiceSettings, WorkRequest, WorkerToken};
use crate::{JobId, Kind, Service};

fn token() -> WorkerToken {
    WorkerToken::named("anyone")
}
const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;

#[test]
fn the_time_left_is_by_what_ended_since_the_pace_is_measured() {
    let pace = JobPace { since: 1_000, ended: 10, idle_since: None };
    assert_eq!(pace.eta(3_000, 0, 20, 40), Some(4_000));
    assert_eq!(pace.eta(3_000, 0, 10, 40), None);
    assert_eq!(pace.eta(3_000, 0, 40, 40), None);
    // Idle from 1.5 s on, and released at 2 s: half a second does not count.
    let idle = JobPace { idle_since: Some(1_500), ..pace };
    assert_eq!(idle.eta(3_000, 2_000, 20, 40), Some(3_000));
    assert_eq!(idle.eta(3_000, 1_400, 20, 40), Some(4_000));
}

struct Scene {
    service: Service,
    clock: Arc<AtomicU64>,
}

impl Scene {
    async fn start(folder: &std::path::Path) -> Scene {
        let clock = Arc::new(AtomicU64::new(HOUR));
        let shown = Arc::clone(&clock);
        let steady = SteadyClock::new(move || Duration::from_millis(shown.load(SeqCst)));
        let outside = Outside { steady, ..Outside::system(tokio::runtime::Handle::current()) };
        let service = Service::builder(ServiceSettings::new(folder.join("store")))
            .kind("remote", Kind::leased(Duration::from_secs(60)));
        Scene { service: service.start_in(outside).await.unwrap(), clock }
    }

    fn core(&self) -> &Arc<Core> {
        &self.service.core
    }

    fn pass(&self, ms: u64) {
        self.clock.fetch_add(ms, SeqCst);
    }

    async fn lease(&self) -> String {
        let wait = Duration::from_secs(3600);
        let request = WorkRequest {
            kinds: vec!["remote".to_owned()],
            most: 1,
            wait,
            worker: None,
            token: token(),
        };
        let closing = CancellationToken::new();
        self.core().remote_workers.claim(request, &closing).await.unwrap().remove(0).id
    }

    /// Runs the next subtask for ten seconds.
    async fn run(&self) {
        let lease = self.lease().await;
        self.pass(10 * SECOND);
        self.core()
            .remote_workers
            .report_one(LeaseReport::success(&lease), &token())
            .await
            .unwrap();
    }

    fn eta(&self, id: JobId) -> Option<u64> {
        self.core().query.job(id).unwrap().eta_ms
    }

    async fn key(&self, command: KeyCommand) {
        let act = AuditedRequest::in_process(OperatorAction::PauseKey);
        self.core().control.steer_key("k", command, &act).await.unwrap();
    }
}

/// Regression: the time of the pause counted as work, so a job of seconds had hours left.
#[tokio::test(flavor = "multi_thread")]
async fn the_pause_of_a_key_is_no_part_of_the_pace() {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::start(folder.path()).await;
    let job = r#"{"kind":"remote","subtasks":[
        {"key":"k","payload":1},{"key":"k","payload":2},{"key":"k","payload":3},{"key":"k","payload":4}]}"#;
    let id = scene.service.submit(job).await.unwrap();
    scene.run().await;
    scene.run().await;
    for _ in 0..2 {
        scene.key(KeyCommand::Pause).await;
        scene.pass(HOUR);
        scene.key(KeyCommand::Resume).await;
    }
    // At once, and when the next subtask runs.
    let lease = scene.lease().await;
    assert_eq!(scene.eta(id), Some(20 * SECOND));
    // A pause in which a subtask runs is work.
    scene.pass(5 * SECOND);
    scene.key(KeyCommand::Pause).await;
    scene.pass(5 * SECOND);
    scene.key(KeyCommand::Resume).await;
    scene.core().remote_workers.report_one(LeaseReport::success(&lease), &token()).await.unwrap();
    let _last = scene.lease().await;
    assert_eq!(scene.eta(id), Some(10 * SECOND));
    scene.service.stop(Duration::ZERO).await;
}
