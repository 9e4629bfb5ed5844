//! Spans of jobs and attempts, for a collector of OpenTelemetry.
//!
//! # Protocol
//!
//! 1. **Ids need no state.** A job is in the trace of its submission, or in one whose id is the job's. The ids of spans are
//!    hashes: of the job's id, and of job, step and fence of an attempt. So an attempt after a restart has the same parent.
//! 2. **One decision for a trace.** A job whose `traceparent` says so is sampled, or one without `traceparent` whose hash is
//!    below the ratio. Handlers of a sampled job get the span of their attempt as the parent, with the sampled flag.
//! 3. **Spans never hold up work.** A span is made when an attempt or a job has ended, and goes into a queue with a bound, from
//!    which the exporter sends batches. A span that finds the queue full is dropped and counted. No span is stored:
//!    those that are not sent before a crash are lost.

mod exporter;
mod otlp;
mod span;
mod trace_settings;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use self::span::{AttributeValue, MAX_TEXT_BYTES, Span, hash, trace_of};
use super::cut_text::cut_text;
use super::engine_state::{ActiveJob, RunningAttempt};
use super::step_numbers::shown;
use crate::TraceContext;
use crate::wire::{Job, JobState, Timestamp};

pub(super) use self::exporter::SpanExporter;
pub use self::trace_settings::{InvalidTraceSettings, TraceSettings};

/// Maximum number of spans that wait to be sent.
const MAX_QUEUED: usize = 8192;

/// Number of waiting spans that are sent without a further wait.
const BATCH: usize = 512;

/// Spans on their way to the collector.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// Without settings there are no spans.
    settings: Option<TraceSettings>,
    queue: Mutex<SpanQueue>,
    /// Notified when a batch is complete.
    filled: Notify,
}

#[derive(Debug, Default)]
struct SpanQueue {
    spans: VecDeque<Span>,
    /// Numbers since the start.
    exported: u64,
    dropped: u64,
}

impl Traces {
    pub(super) fn new(settings: Option<TraceSettings>) -> Self {
        Traces { settings, ..Traces::default() }
    }

    fn queue(&self) -> MutexGuard<'_, SpanQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the trace context for the handler of an attempt: that of the job, with the span of the attempt as the parent
    /// if the job is sampled.
    pub(super) fn context_of(
        &self,
        live: &ActiveJob,
        running: &RunningAttempt,
        fence: u64,
    ) -> Option<TraceContext> {
        let submitted = live.head.trace.as_ref();
        if !self.is_sampled(live.id.0, submitted.map(TraceContext::traceparent)) {
            return submitted.cloned();
        }
        let (trace, _) = trace_of(live.id.0, submitted.map(TraceContext::traceparent));
        let span = attempt_id(live, running, fence);
        let parent = format!("00-{trace:032x}-{span:016x}-01");
        TraceContext::parse(&parent, submitted.and_then(TraceContext::tracestate).unwrap_or(""))
    }

    fn is_sampled(&self, job: [u8; 16], traceparent: Option<&str>) -> bool {
        let Some(settings) = &self.settings else { return false };
        match traceparent {
            // The last digit has the sampled flag.
            Some(parent) => parent.as_bytes().last().is_some_and(|flags| flags & 1 == 1),
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            None => (hash(&[b"sample", &job]) as f64) < settings.ratio * u64::MAX as f64,
        }
    }

    /// Records an attempt that has ended.
    pub(super) fn attempt_ended(
        &self,
        live: &ActiveJob,
        running: &RunningAttempt,
        fence: u64,
        (outcome, error): (&'static str, Option<&str>),
        now: Timestamp,
    ) {
        let parent = live.head.trace.as_ref().map(TraceContext::traceparent);
        if !self.is_sampled(live.id.0, parent) {
            return;
        }
        let (trace, _) = trace_of(live.id.0, parent);
        let keys = running.keys.exclusive.iter().chain(&running.keys.shared);
        self.add(Span {
            trace,
            id: attempt_id(live, running, fence),
            parent: Some(job_id(live.id.0)),
            name: format!("{} attempt", live.head.kind),
            begin: running.since,
            end: now,
            started: None,
            attributes: vec![
                ("keylane.job", AttributeValue::Text(live.id.to_string())),
                ("keylane.kind", AttributeValue::Text(live.head.kind.clone())),
                ("keylane.subtask", AttributeValue::Number(shown(running.step).into())),
                ("keylane.keys", AttributeValue::keys(keys)),
                ("keylane.attempt", AttributeValue::Number(running.attempt.into())),
                ("keylane.slot", AttributeValue::Number(running.slot.into())),
                ("keylane.outcome", AttributeValue::Text(outcome.into())),
            ],
            error: error.map(|error| cut_text(error, MAX_TEXT_BYTES)),
        });
    }

    /// Records a job that has ended.
    pub(super) fn job_ended(&self, id: [u8; 16], job: &Job) {
        let parent = job.traceparent.as_deref();
        if !self.is_sampled(id, parent) {
            return;
        }
        let (trace, parent) = trace_of(id, parent);
        let end = job.ended_at.unwrap_or(job.created_at);
        let error = || job.error.as_deref().unwrap_or("a subtask failed");
        self.add(Span {
            trace,
            id: job_id(id),
            parent,
            name: format!("{} job", job.kind),
            begin: job.created_at,
            end,
            started: job.started_at,
            attributes: vec![
                ("keylane.job", AttributeValue::Text(job.id.clone())),
                ("keylane.kind", AttributeValue::Text(job.kind.clone())),
                ("keylane.tenant", AttributeValue::Text(job.tenant.clone())),
                ("keylane.outcome", AttributeValue::Text(job.state.as_str().into())),
                ("keylane.subtasks", AttributeValue::Number(job.counts.total)),
                ("keylane.subtasks.failed", AttributeValue::Number(job.counts.failed)),
            ],
            error: (job.state == JobState::Failed).then(|| cut_text(error(), MAX_TEXT_BYTES)),
        });
    }

    fn add(&self, span: Span) {
        let mut queue = self.queue();
        if queue.spans.len() >= MAX_QUEUED {
            queue.dropped += 1;
            return;
        }
        queue.spans.push_back(span);
        if queue.spans.len() == BATCH {
            self.filled.notify_one();
        }
    }

    /// Writes the metrics of spans.
    pub(super) fn write_metrics(&self, to: &mut String) -> fmt::Result {
        use fmt::Write;
        let (exported, dropped) = {
            let queue = self.queue();
            (queue.exported, queue.dropped)
        };
        writeln!(to, "# HELP keylane_spans_total Spans for the collector of traces.")?;
        writeln!(to, "# TYPE keylane_spans_total counter")?;
        writeln!(to, "keylane_spans_total{{outcome=\"exported\"}} {exported}")?;
        writeln!(to, "keylane_spans_total{{outcome=\"dropped\"}} {dropped}")
    }
}

fn job_id(job: [u8; 16]) -> u64 {
    hash(&[b"job", &job])
}

fn attempt_id(live: &ActiveJob, running: &RunningAttempt, fence: u64) -> u64 {
    let step = shown(running.step).to_be_bytes();
    hash(&[b"attempt", &live.id.0, &step, &fence.to_be_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_decides_for_its_trace_and_the_ratio_for_others() {
        let traces = |ratio| {
            let settings = TraceSettings::new("http://127.0.0.1:1").unwrap().ratio(ratio);
            Traces::new(Some(settings.unwrap()))
        };
        let parent =
            |flags| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        assert!(traces(0.0).is_sampled([1; 16], Some(&parent("01"))));
        assert!(!traces(1.0).is_sampled([1; 16], Some(&parent("00"))));
        assert!(!Traces::default().is_sampled([1; 16], Some(&parent("01"))));
        let sampled = |ratio| {
            let jobs = (0..2000_u128).map(u128::to_be_bytes);
            jobs.filter(|job| traces(ratio).is_sampled(*job, None)).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 2000));
        assert!((400..600).contains(&sampled(0.25)), "{}", sampled(0.25));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let traces = Traces::default();
        let span = span::tests::span();
        (0..MAX_QUEUED + 3).for_each(|_| traces.add(span.clone()));
        let mut text = String::new();
        traces.write_metrics(&mut text).unwrap();
        assert!(text.contains("keylane_spans_total{outcome=\"dropped\"} 3"), "{text}");
    }
}
