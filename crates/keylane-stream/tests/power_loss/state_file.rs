//! The state file of a file source after a power failure: the progress is that of a commit, and at
//! least that of the last acknowledged one.

use std::time::Duration;

use keylane_stream::Position;
use keylane_stream::lines::FileSource;
use keylane_stream::source::{ProgressCommit, Source, SourceEvent};
use keylane_stream::tracker::Progress;
use keylane_testkit::Random;
use keylane_testkit::power_loss::{Crashed, Recording, SyncPoint, Trace, check_all, check_needed};
use tempfile::TempDir;

const STATE: &str = "lines.state";
const LINES: u64 = 200;

/// Input file, and the progress of each commit. A commit has the note `2 * number` before it, and
/// `2 * number + 1` after its acknowledgement.
struct Commits {
    input: TempDir,
    progress: Vec<Progress>,
}

fn input() -> TempDir {
    let input = tempfile::tempdir().unwrap();
    let lines: String = (0..LINES).map(|line| format!("line {line}\n")).collect();
    std::fs::write(input.path().join("lines"), lines).unwrap();
    input
}

fn events(source: &mut FileSource) -> Vec<SourceEvent> {
    let mut events = Vec::new();
    source.poll(Duration::ZERO, LINES as usize, &mut events).unwrap();
    events
}

/// Progress that includes the earlier one, with gaps.
fn further(earlier: &Progress, random: &mut Random) -> Progress {
    let end = earlier.end().get().max(earlier.watermark().get());
    let end = (end + random.number() % 20).min(LINES);
    let is_done = |line| earlier.is_done(Position::new(line));
    let incomplete: Vec<u64> =
        (0..end).filter(|line| !is_done(*line) && random.once_in(3)).collect();
    let watermark = incomplete.first().copied().unwrap_or(end);
    let at = |line: &u64| Position::new(*line);
    Progress::with_map(at(&watermark), at(&end), incomplete.iter().map(at).collect())
}

fn commits(seed: u64) -> (Trace, Commits) {
    let mut random = Random::new(seed);
    let mut recording = Recording::start();
    let input = input();
    let mut all = Vec::new();
    for _ in 0..=random.below(3) {
        let state = recording.folder().join(STATE);
        let mut source = FileSource::open(input.path().join("lines"), state).unwrap();
        let mut progress = assigned(&events(&mut source)).unwrap();
        let partition = source_partition(&input);
        for _ in 0..random.below(5) {
            progress = further(&progress, &mut random);
            let number = all.len() as u64;
            all.push(progress.clone());
            recording.note(2 * number);
            let progress = progress.clone();
            source.commit(vec![ProgressCommit { partition: partition.clone(), progress }]);
            let stored = events(&mut source)
                .into_iter()
                .any(|event| matches!(event, SourceEvent::Committed { result: Ok(()), .. }));
            assert!(stored);
            recording.note(2 * number + 1);
        }
        drop(source);
        if random.once_in(3) {
            let trace = recording.finish();
            let at = trace.len() - random.below(trace.len().min(20));
            recording = Recording::after_kill(&trace, at);
        }
    }
    (recording.finish(), Commits { input, progress: all })
}

fn source_partition(input: &TempDir) -> keylane_stream::Partition {
    keylane_stream::Partition::new(input.path().join("lines").display().to_string(), 0)
}

fn assigned(events: &[SourceEvent]) -> Option<Progress> {
    events.iter().find_map(|event| match event {
        SourceEvent::Assigned(assigned) => Some(assigned.progress.clone()),
        _ => None,
    })
}

fn check(crashed: &Crashed, commits: &Commits) -> Result<(), String> {
    let state = crashed.folder().join(STATE);
    let source = FileSource::open(commits.input.path().join("lines"), state);
    let mut source = source.map_err(|error| format!("{error:?}"))?;
    let found = assigned(&events(&mut source)).ok_or("no progress")?;
    let stored = crashed.notes().iter().rfind(|note| *note % 2 == 1);
    let first = stored.map_or(0, |note| note / 2) as usize;
    let last = crashed.notes().iter().rfind(|note| *note % 2 == 0);
    let end = last.map_or(0, |note| note / 2 + 1) as usize;
    let nothing = Progress::up_to(Position::ZERO);
    if stored.is_none() && found == nothing || commits.progress[first..end].contains(&found) {
        return Ok(());
    }
    Err(format!("{found:?} is none of {:?}", &commits.progress[first..end]))
}

#[test]
fn progress_is_never_lost_and_never_ahead() {
    check_all(100, commits, check);
}

#[test]
fn the_sync_of_the_content_is_needed() {
    let content = |sync: SyncPoint<'_>| sync == SyncPoint::File("lines.state-new");
    check_needed("the sync of the content", content, commits, check);
}

#[test]
fn the_sync_of_the_name_is_needed() {
    let name = |sync: SyncPoint<'_>| sync == SyncPoint::Folder;
    check_needed("the sync of the folder", name, commits, check);
}
