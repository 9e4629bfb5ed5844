//! Fuzz targets: what clients send, and what the store reads. Each target panics if a promise does not hold.
//!
//! The tests run them on the files in `corpus/` and on mutations of these. `fuzz/` calls the same functions from
//! `cargo fuzz`.

pub use crate::engine::{fuzz_cron as cron, fuzz_split_result as split_result};
pub use crate::http::{fuzz_submission as submission, fuzz_websocket as websocket};
pub use crate::store::{
    fuzz_chunk as chunk, fuzz_export_line as export_line, fuzz_log as log, fuzz_marks as marks,
};
use crate::wire::Timestamp;
use crate::{JobId, TraceContext};

/// Texts with a meaning: ids of jobs, times, trace contexts. A text that is read has one written form.
pub fn texts(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(id) = JobId::parse(text) {
        assert_eq!(id.to_string(), text);
    }
    if let Ok(time) = serde_json::from_value::<Timestamp>(text.into()) {
        let again: Timestamp = serde_json::from_value(time.to_string().into()).unwrap();
        assert_eq!(again, time);
    }
    let (parent, state) = text.split_once('\n').unwrap_or((text, ""));
    if let Some(context) = TraceContext::parse(parent, state) {
        let state = context.tracestate().unwrap_or_default();
        let again = TraceContext::parse(context.traceparent(), state);
        assert_eq!(again.as_ref(), Some(&context));
        assert!(state.len() <= 512 && state.split(',').count() <= 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, target: impl Fn(&[u8])) {
        keylane_testkit::fuzz::run(format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR")), target);
    }

    #[test]
    fn chunks_of_subtasks() {
        run("chunk", chunk);
    }

    #[test]
    fn rows_of_marks() {
        run("marks", marks);
    }

    #[test]
    fn rows_of_logs() {
        run("log", log);
    }

    #[test]
    fn lines_of_exports() {
        run("export_line", export_line);
    }

    #[test]
    fn bodies_of_submissions() {
        run("submission", submission);
    }

    #[test]
    fn messages_of_websockets() {
        run("websocket", websocket);
    }

    #[test]
    fn results_of_splits() {
        run("split_result", split_result);
    }

    #[test]
    fn patterns_of_schedules() {
        run("cron", cron);
    }

    #[test]
    fn ids_times_and_trace_contexts() {
        run("texts", texts);
    }
}
