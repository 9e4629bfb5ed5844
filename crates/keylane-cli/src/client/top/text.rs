//! Snapshot as plain text, for pipes, files and logs.

use keylane_service::wire::RunningSubtask;

use super::snapshot::ServerSnapshot;
use crate::client::render::{age, plain, table};
use crate::client::{keys, status};

/// Columns of the list of running subtasks.
pub(super) const SLOT_COLUMNS: [&str; 5] = ["SLOT", "SUBTASK", "KEY", "FOR", "WORKER"];

/// Rows of the running subtasks.
pub(super) fn slots(picture: &ServerSnapshot) -> Vec<Vec<String>> {
    let now = picture.summary.at;
    let row = |running: &RunningSubtask| {
        let attempt = match running.attempt {
            0 | 1 => String::new(),
            attempt => format!(", attempt {attempt}"),
        };
        vec![
            running.slot.to_string(),
            format!("{}/{}{attempt}", plain(&running.job), running.number),
            plain(&key_names(running).join(", ")).into_owned(),
            match running.progress {
                Some(done) => format!("{}, {}%", age(running.since, now), (done * 100.0) as u64),
                None => age(running.since, now),
            },
            running.worker.as_deref().map_or_else(String::new, |worker| plain(worker).into_owned()),
        ]
    };
    picture.scheduler.running.iter().map(row).collect()
}

/// Keys of a running subtask, and which of them it shares.
fn key_names(running: &RunningSubtask) -> Vec<String> {
    let shared = running.shared_keys.iter().map(|key| format!("{key} (shared)"));
    running.keys.iter().cloned().chain(shared).collect()
}

/// Whole snapshot as text.
pub(super) fn snapshot(picture: &ServerSnapshot) -> String {
    let [first, second] = picture.headline(None);
    let jobs: Vec<_> =
        picture.jobs.iter().map(|job| status::row(job, picture.summary.at)).collect();
    let keys: Vec<_> = picture.keys.iter().map(keys::row).collect();
    format!(
        "{first}\n{second}\n\n{}\n{}\n{}",
        table(&status::COLUMNS, &[2, 3, 4], &jobs),
        table(&SLOT_COLUMNS, &[0], &slots(picture)),
        table(&keys::COLUMNS, &[2, 3], &keys),
    )
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::picture;
    use super::*;
    use crate::client::render::tests::job;

    #[test]
    fn a_picture_is_text() {
        let text = snapshot(&picture(vec![job(r#"{"name": "nightly"}"#)]));
        let expected = "\
up 1 h 2 min | store ok, 12.3 MiB
2 of 64 slots busy | 540 waiting, 20 ready, 3 backing off | 12345 done, 3 failed | 12 keys, oldest head 1 min 1 s

ID                                    STATE    DONE  TOTAL  FAILED  KIND    NAME     AGE
job_0199aaaaaaaa7000800000000000000a  running   45%   1000       3  resize  nightly  1 h 2 min

SLOT  SUBTASK                                 KEY             FOR       WORKER
   0  job_0199aaaaaaaa7000800000000000000a/7  u7, s (shared)  3 s
   1  job_0199aaaaaaaa7000800000000000000a/8  u8, s (shared)  3 s, 42%  w1

KEY  STATE  UNFINISHED  HEAD SINCE  HEAD                                    ITS STATE
u7   open           12   1 min 0 s  job_0199aaaaaaaa7000800000000000000a/7  running
";
        assert_eq!(text, expected);
    }
}
