//! Tests of what a start restores.

use std::time::Duration;

use crate::engine::ServiceSettings;
use crate::engine::order_check::OrderViolation;
use crate::store::Changes;
use crate::{JobNumber, Key, Kind, Service, SubtaskId, TaskKeys};

async fn start(folder: &std::path::Path) -> Service {
    let remote = Kind::leased(Duration::from_secs(60));
    let settings = ServiceSettings::new(folder.join("store"));
    Service::builder(settings).kind("remote", remote).start().await.unwrap()
}

/// Regression: the check knew nothing of an attempt that a crash had cut off, so a successor that began before the next
/// attempt was no violation.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_a_crash_cut_off_still_holds_its_keys_in_the_check_of_the_order() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let two = r#"{"kind":"remote","subtasks":[{"key":"k","payload":1},{"key":"k","payload":2}]}"#;
    let job = service.submit(two).await.unwrap().number();
    let [first, second] = [0, 1].map(|number| SubtaskId { job, number });
    // The mark is what a crash during the attempt leaves.
    let mut changes = Changes::new();
    changes.started(first, 1);
    service.core.store.submit(changes).wait().unwrap();
    service.stop(Duration::ZERO).await;
    let service = start(folder.path()).await;
    {
        let order = &mut service.core.state.lock().order;
        let keys = TaskKeys { exclusive: vec![Key::new("k")], ..TaskKeys::default() };
        let other = SubtaskId { job: JobNumber(job.0 + 1), number: 0 };
        let beside = Some(OrderViolation::Beside(first));
        assert_eq!(order.begun(other, &keys, |_| true), beside);
        order.ended(other);
        assert_eq!(order.begun(first, &keys, |_| true), None);
        order.ended(first);
        assert_eq!(order.begun(second, &keys, |_| true), None);
    }
    service.stop(Duration::ZERO).await;
}

/// The check is told a wrong history: the later subtask of a key begins while the earlier one has not ended.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_violation_raises_the_metric() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let two = r#"{"kind":"remote","subtasks":[{"key":"k","payload":1},{"key":"k","payload":2}]}"#;
    let job = service.submit(two).await.unwrap().number();
    let count = || {
        let text = service.core.metrics().text();
        let line = text.lines().find(|line| line.starts_with("keylane_order_violations_total "));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let begins = |number| {
        let subtask = SubtaskId { job, number };
        service.core.state.lock().check_order(
            subtask,
            &TaskKeys { exclusive: vec![Key::new("k")], ..TaskKeys::default() },
        );
    };
    begins(0);
    assert_eq!(count(), 0);
    begins(1);
    assert_eq!(count(), 1);
    // The earlier one was overtaken.
    begins(0);
    assert_eq!(count(), 2);
    service.stop(Duration::ZERO).await;
}
