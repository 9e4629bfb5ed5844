//! Exports a trace as JSON in the Trace Event Format, which Perfetto, Chrome and speedscope read.
//!
//! Workers are threads, tasks are complete events (`X`) named for their keys, and kept turns are
//! asynchronous ones (`b`, `e`). Flows (`s`, `f`) connect a task with those that waited for it in a
//! lane. <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::time::Duration;

use super::{Trace, TraceSlice};

/// Color names of Chrome's viewers. Perfetto derives the color from the event's name.
const COLORS: [&str; 12] = [
    "thread_state_uninterruptible",
    "thread_state_iowait",
    "thread_state_running",
    "thread_state_runnable",
    "rail_response",
    "rail_animation",
    "rail_idle",
    "rail_load",
    "startup",
    "generic_work",
    "olive",
    "yellow",
];

impl<K: Hash + Eq + Debug> Trace<K> {
    /// Writes the trace as JSON in the Trace Event Format, for <https://ui.perfetto.dev>,
    /// `chrome://tracing` or speedscope. Keys are named by their `Debug` output.
    ///
    /// ```
    /// # use keylane::Pool;
    /// # let pool = Pool::<u32>::builder().build()?;
    /// pool.inspect().start_trace(1000);
    /// for task in 0..100 {
    ///     pool.submit(task % 10, || ())?.wait()?;
    /// }
    /// let trace = pool.inspect().take_trace().expect("one was started");
    /// let mut json = Vec::new(); // or a file
    /// trace.write_chrome(&mut json)?;
    /// assert!(String::from_utf8(json)?.contains("\"traceEvents\":["));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    pub fn write_chrome(&self, out: impl Write) -> io::Result<()> {
        self.write_chrome_with(out, |key| format!("{key:?}"))
    }
}

impl<K: Hash + Eq> Trace<K> {
    /// Writes the trace as [`write_chrome`](Self::write_chrome) does, with `name` as the name of
    /// each key.
    ///
    /// ```
    /// # use keylane::Pool;
    /// # let pool = Pool::<u32>::builder().workers(1).build()?;
    /// pool.inspect().start_trace(1000);
    /// for _ in 0..100 {
    ///     pool.submit(7, || ())?.wait()?;
    /// }
    /// let trace = pool.inspect().take_trace().expect("one was started");
    /// let mut json = Vec::new();
    /// trace.write_chrome_with(&mut json, |account| format!("account {account}"))?;
    /// assert!(String::from_utf8(json)?.contains("account 7"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    pub fn write_chrome_with(
        &self,
        out: impl Write,
        name: impl Fn(&K) -> String,
    ) -> io::Result<()> {
        let mut out = EventWriter { out: io::BufWriter::new(out), any: false };
        write!(out.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        self.write_tracks(&mut out)?;
        for (number, slice) in self.slices.iter().enumerate() {
            match slice.worker {
                Some(worker) => self.write_slice(&mut out, slice, worker, &name)?,
                None => self.write_turn(&mut out, slice, number, &name)?,
            }
        }
        for (flow, (from, to)) in self.flows().into_iter().enumerate() {
            self.write_flow(&mut out, flow, &self.slices[from], &self.slices[to])?;
        }
        write!(out.out, "\n],\"otherData\":{{\"dropped\":{}}}}}", self.dropped)?;
        out.out.write_all(b"\n")?;
        out.out.flush()
    }

    fn write_tracks(&self, out: &mut EventWriter<impl Write>) -> io::Result<()> {
        let mut workers: Vec<_> = self.slices.iter().filter_map(|slice| slice.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        for worker in workers {
            let name = JsonText(format!("{}-{worker}", self.thread_name));
            out.event(format_args!(
                "\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{worker},\"args\":{{\"name\":{name}}}"
            ))?;
            out.event(format_args!(
                "\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":1,\"tid\":{worker},\
                 \"args\":{{\"sort_index\":{worker}}}"
            ))?;
        }
        Ok(())
    }

    fn write_slice(
        &self,
        out: &mut EventWriter<impl Write>,
        slice: &TraceSlice<K>,
        worker: usize,
        name: &impl Fn(&K) -> String,
    ) -> io::Result<()> {
        let (title, args) = (JsonText(title(slice, name)), TraceArgs(slice));
        let (ts, dur, color) = (Micros(slice.start), Micros(slice.duration), color(slice));
        out.event(format_args!(
            "\"ph\":\"X\",\"cat\":\"task\",\"name\":{title},\"pid\":1,\"tid\":{worker},\"ts\":{ts},\
             \"dur\":{dur},\"cname\":\"{color}\",\"args\":{args}"
        ))
    }

    fn write_turn(
        &self,
        out: &mut EventWriter<impl Write>,
        slice: &TraceSlice<K>,
        number: usize,
        name: &impl Fn(&K) -> String,
    ) -> io::Result<()> {
        let (title, args) = (JsonText(title(slice, name)), TraceArgs(slice));
        for (phase, at) in [("b", slice.start), ("e", slice.end_time())] {
            let ts = Micros(at);
            out.event(format_args!(
                "\"ph\":\"{phase}\",\"cat\":\"turn\",\"id\":{number},\"name\":{title},\"pid\":1,\"tid\":0,\
                 \"ts\":{ts},\"args\":{args}"
            ))?;
        }
        Ok(())
    }

    fn write_flow(
        &self,
        out: &mut EventWriter<impl Write>,
        flow: usize,
        from: &TraceSlice<K>,
        to: &TraceSlice<K>,
    ) -> io::Result<()> {
        let (Some(before), Some(after)) = (from.worker, to.worker) else { return Ok(()) };
        // Both ends lie within their slices, because viewers find the slices by these times. A kept
        // turn may have ended before its worker was done with it, so the end is limited by the next
        // start.
        let last = from.end_time().saturating_sub(Duration::from_nanos(1)).max(from.start);
        let end = Micros(last.min(to.start));
        let start = Micros(to.start);
        out.event(format_args!(
            "\"ph\":\"s\",\"cat\":\"lane\",\"name\":\"lane\",\"id\":{flow},\"pid\":1,\"tid\":{before},\
             \"ts\":{end}"
        ))?;
        out.event(format_args!(
            "\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"lane\",\"name\":\"lane\",\"id\":{flow},\"pid\":1,\
             \"tid\":{after},\"ts\":{start}"
        ))
    }

    /// Pairs of slices, by index, of which the first passed a lane to the second.
    fn flows(&self) -> Vec<(usize, usize)> {
        let mut lanes: HashMap<&K, FlowState> = HashMap::new();
        let mut flows = Vec::new();
        let mut barrier = None;
        for (number, slice) in self.slices.iter().enumerate() {
            if slice.worker.is_none() {
                continue;
            }
            let first = flows.len();
            for traced in &slice.keys {
                let flow_state = lanes.entry(&traced.key).or_default();
                flow_state.enter(number, traced.is_shared);
                if flow_state.before.is_empty() {
                    flow_state.before.extend(barrier);
                }
                flows.extend(flow_state.before.iter().map(|&before| (before, number)));
            }
            if slice.is_barrier {
                let last = lanes.values().flat_map(|flow_state| &flow_state.now).copied();
                let last = last.max_by_key(|&number| self.slices[number].end_time());
                flows.extend(last.or(barrier).map(|last| (last, number)));
                lanes.clear();
                barrier = Some(number);
            }
            // Two tasks with several common keys need one arrow.
            flows[first..].sort_unstable();
            dedup_from(&mut flows, first);
        }
        flows
    }
}

fn dedup_from(flows: &mut Vec<(usize, usize)>, first: usize) {
    let mut new = flows.split_off(first);
    new.dedup();
    flows.append(&mut new);
}

/// Last tasks of a key that ran, and those before them.
#[derive(Default)]
struct FlowState {
    now: Vec<usize>,
    shared: bool,
    before: Vec<usize>,
}

impl FlowState {
    fn enter(&mut self, number: usize, shared: bool) {
        if !(shared && self.shared) {
            self.before = std::mem::take(&mut self.now);
        }
        self.shared = shared;
        self.now.push(number);
    }
}

fn title<K>(slice: &TraceSlice<K>, name: &impl Fn(&K) -> String) -> String {
    match (slice.is_barrier, &slice.job) {
        (true, _) => "barrier".to_owned(),
        (_, Some(job)) => job.to_string(),
        _ if slice.keys.is_empty() => "no key".to_owned(),
        _ => {
            let names: Vec<_> = slice.keys.iter().map(|traced| name(&traced.key)).collect();
            names.join(" + ")
        }
    }
}

fn color<K: Hash>(slice: &TraceSlice<K>) -> &'static str {
    let mut hasher = DefaultHasher::new();
    slice.keys.iter().for_each(|traced| traced.key.hash(&mut hasher));
    slice.job.hash(&mut hasher);
    COLORS[(hasher.finish() % COLORS.len() as u64) as usize]
}

/// JSON list of events, one per line.
struct EventWriter<W: Write> {
    out: io::BufWriter<W>,
    any: bool,
}

impl<W: Write> EventWriter<W> {
    fn event(&mut self, fields: fmt::Arguments<'_>) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        write!(self.out, "{comma}\n{{{fields}}}")
    }
}

struct TraceArgs<'a, K>(&'a TraceSlice<K>);

impl<K> fmt::Display for TraceArgs<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceSlice { task, wait, end, keys, .. } = self.0;
        let shared = keys.iter().any(|traced| traced.is_shared);
        write!(f, "{{\"end\":\"{}\",\"shared\":{shared}", end.name())?;
        if let Some(task) = task {
            write!(f, ",\"task\":\"{task:x}\"")?;
        }
        if let Some(wait) = wait {
            write!(f, ",\"wait_us\":{}", Micros(*wait))?;
        }
        f.write_str("}")
    }
}

/// Microseconds with three decimals, the unit of the format.
struct Micros(Duration);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        write!(f, "{}.{:03}", nanos / 1000, nanos % 1000)
    }
}

/// JSON string.
struct JsonText(String);

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for char in self.0.chars() {
            match char {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                control if control < ' ' => write!(f, "\\u{:04x}", control as u32)?,
                other => write!(f, "{other}")?,
            }
        }
        f.write_str("\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_a_string_of_json() {
        assert_eq!(
            JsonText("a\"b\\c\nd\u{1}é".into()).to_string(),
            "\"a\\\"b\\\\c\\u000ad\\u0001é\""
        );
        assert_eq!(Micros(Duration::from_nanos(1_234_005)).to_string(), "1234.005");
    }

    #[test]
    fn readers_are_joined_to_the_writer_before_them_and_all_of_them_to_the_next() {
        let mut flow_state = FlowState::default();
        let steps = [(0, false), (1, true), (2, true), (3, false), (4, false)];
        let before = steps.map(|(number, shared)| {
            flow_state.enter(number, shared);
            flow_state.before.clone()
        });
        assert_eq!(before, [vec![], vec![0], vec![0], vec![1, 2], vec![3]]);
    }
}
