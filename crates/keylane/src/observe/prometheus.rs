//! Writes a snapshot in the Prometheus text format, version 0.0.4.
//!
//! The format is <https://prometheus.io/docs/instrumenting/exposition_formats/>. It takes a dozen
//! lines to write, and the values are in the snapshot; a registry with metrics of its own would
//! have to be updated while tasks run.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use super::{Histogram, Snapshot, WorkerSnapshot};

/// Upper bounds of the buckets, in nanoseconds: four in each power of ten, from a microsecond to 75
/// seconds.
const ENDS_PER_DECADE: [u64; 4] = [1_000, 2_000, 5_000, 7_500];
const DECADES: u32 = 8;

impl<K> Snapshot<K> {
    /// Writes the snapshot as metrics in the text format of Prometheus (version 0.0.4), with names
    /// that begin with `keylane_`. Serve it as `text/plain; version=0.0.4`.
    ///
    /// `labels` are added to each sample, such as the pool's name. Keys are not used as labels,
    /// because there may be millions of them. Times are in seconds, the unit of Prometheus; where
    /// tasks are sampled the histograms are estimates. A bucket counts the durations that do not
    /// exceed its bound, to within 6.25 %.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let mut text = String::new();
    /// pool.inspect().snapshot(0).write_prometheus(&mut text, &[("pool", "orders")])?;
    /// assert!(text.contains("keylane_tasks_accepted_total{pool=\"orders\"} 0\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    ///
    /// # Panics
    ///
    /// If the name of a label is invalid: it must consist of letters, digits and `_`, and not begin
    /// with a digit.
    pub fn write_prometheus(&self, out: &mut impl Write, labels: &[(&str, &str)]) -> fmt::Result {
        for (name, _) in labels {
            assert!(
                is_label_name(name),
                "{name:?} cannot be the name of a label; use letters, digits and `_`, and no digit first"
            );
        }
        let mut text = MetricsText { out, labels };
        self.write_tasks(&mut text)?;
        self.write_bounds(&mut text)?;
        text.histogram(
            "keylane_task_wait_seconds",
            "Time from the submission of a task to the start of its body.",
            &self.wait_time,
        )?;
        text.histogram(
            "keylane_task_run_seconds",
            "Time from the start of a task's body to its end.",
            &self.run_time,
        )?;
        self.write_workers(&mut text)
    }

    fn write_tasks(&self, text: &mut MetricsText<'_, impl Write>) -> fmt::Result {
        let done = self.finished.saturating_sub(self.panicked + self.failed + self.cancelled);
        text.counter("keylane_tasks_accepted_total", "Tasks that were accepted.", self.accepted)?;
        text.counter("keylane_tasks_refused_total", "Tasks that were not accepted.", self.refused)?;
        text.family("keylane_tasks_ended_total", "Tasks that have ended, by outcome.", "counter")?;
        let outcomes = [
            ("done", done),
            ("failed", self.failed),
            ("panicked", self.panicked),
            ("cancelled", self.cancelled),
            ("superseded", self.superseded),
        ];
        for (outcome, tasks) in outcomes {
            text.sample("keylane_tasks_ended_total", &[("outcome", outcome)], tasks)?;
        }
        let help = "Further attempts of failed tasks.";
        text.counter("keylane_attempts_retried_total", help, self.retried)?;
        let help = "Unfinished tasks, by state.";
        text.family("keylane_tasks", help, "gauge")?;
        let states = [
            ("delayed", self.delayed),
            ("queued", self.queued),
            ("blocked", self.blocked),
            ("ready", self.ready),
            ("running", self.running),
        ];
        for (state, tasks) in states {
            text.sample("keylane_tasks", &[("state", state)], tasks)?;
        }
        if let Some(violations) = &self.violations {
            let help = "Tasks that started out of order; must be 0.";
            text.counter("keylane_order_violations_total", help, violations.order)?;
            let help = "Tasks that started while a conflicting task ran; must be 0.";
            text.counter("keylane_overlap_violations_total", help, violations.overlap)?;
        }
        Ok(())
    }

    fn write_bounds(&self, text: &mut MetricsText<'_, impl Write>) -> fmt::Result {
        let help = "Accepted and unfinished tasks.";
        text.gauge("keylane_unfinished_tasks", help, self.unfinished)?;
        let help = "Maximum of accepted and unfinished tasks.";
        text.gauge("keylane_capacity_tasks", help, self.capacity)?;
        let help = "Submitters that wait for the capacity of the pool.";
        text.gauge("keylane_submitters_waiting", help, self.submitters_waiting)?;
        let help = "Submitters that wait for the capacity of a key.";
        text.gauge("keylane_submitters_held", help, self.submitters_held)?;
        if let Some(capacity) = self.capacity_bytes {
            text.gauge("keylane_bytes", "Total cost of unfinished tasks, in bytes.", self.bytes)?;
            text.gauge(
                "keylane_capacity_bytes",
                "Maximum of the total cost of unfinished tasks, in bytes.",
                capacity,
            )?;
        }
        Ok(())
    }

    fn write_workers(&self, text: &mut MetricsText<'_, impl Write>) -> fmt::Result {
        let help = "Workers that sleep because no task is ready.";
        text.gauge("keylane_workers_asleep", help, self.workers_asleep)?;
        let help = "1 if a panic has left the pool inconsistent.";
        text.gauge("keylane_poisoned", help, usize::from(self.poisoned))?;
        text.gauge("keylane_workers_wanted", "Configured number of workers.", self.workers_wanted)?;
        let help = "Tasks that a worker has run.";
        text.per_worker("keylane_worker_tasks_total", help, "counter", &self.workers, |worker| {
            worker.finished.to_string()
        })?;
        let help = "Time that a worker has spent on tasks.";
        text.per_worker(
            "keylane_worker_busy_seconds_total",
            help,
            "counter",
            &self.workers,
            |it| seconds(it.busy_time),
        )?;
        let help = "Time that a worker has slept.";
        text.per_worker(
            "keylane_worker_asleep_seconds_total",
            help,
            "counter",
            &self.workers,
            |it| seconds(it.asleep_time),
        )
    }
}

struct MetricsText<'a, W> {
    out: &'a mut W,
    /// Labels of every sample.
    labels: &'a [(&'a str, &'a str)],
}

impl<W: Write> MetricsText<'_, W> {
    fn family(&mut self, name: &str, help: &str, kind: &str) -> fmt::Result {
        writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}")
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) -> fmt::Result {
        self.out.write_str(name)?;
        for (number, (meta, text)) in self.labels.iter().chain(labels).enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            write!(self.out, "{before}{meta}=\"{}\"", EscapedLabel(text))?;
        }
        if !(self.labels.is_empty() && labels.is_empty()) {
            self.out.write_char('}')?;
        }
        writeln!(self.out, " {value}")
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, "counter")?;
        self.sample(name, &[], value)
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) -> fmt::Result {
        self.family(name, help, "gauge")?;
        self.sample(name, &[], value)
    }

    fn per_worker(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        workers: &[WorkerSnapshot],
        value: impl Fn(&WorkerSnapshot) -> String,
    ) -> fmt::Result {
        self.family(name, help, kind)?;
        workers.iter().try_for_each(|worker| {
            self.sample(name, &[("worker", &worker.id.to_string())], value(worker))
        })
    }

    fn histogram(&mut self, name: &str, help: &str, times: &Histogram) -> fmt::Result {
        self.family(name, help, "histogram")?;
        let bucket = format!("{name}_bucket");
        for end in ends() {
            let le = seconds(end);
            self.sample(&bucket, &[("le", &le)], times.count_up_to(end))?;
        }
        self.sample(&bucket, &[("le", "+Inf")], times.count())?;
        self.sample(&format!("{name}_sum"), &[], seconds(times.sum()))?;
        self.sample(&format!("{name}_count"), &[], times.count())
    }
}

fn ends() -> impl Iterator<Item = Duration> {
    let decades = (0..DECADES).map(|decade| 10_u64.pow(decade));
    decades.flat_map(|decade| ENDS_PER_DECADE.map(|end| Duration::from_nanos(end * decade)))
}

/// Formats seconds without trailing zeros, so that the bounds of buckets are short, and always
/// equal.
fn seconds(time: Duration) -> String {
    let text = format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn is_label_name(name: &str) -> bool {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    name.chars().all(is_part) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Escaped text of a label.
struct EscapedLabel<'a>(&'a str);

impl Display for EscapedLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => f.write_char(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_and_short() {
        let written = [0, 1, 1_000, 7_500_000, 1_000_000_000, 20_000_000_000];
        let written = written.map(|nanos| seconds(Duration::from_nanos(nanos)));
        assert_eq!(written, ["0", "0.000000001", "0.000001", "0.0075", "1", "20"]);
        assert_eq!(ends().last(), Some(Duration::from_secs(75)));
        assert!(ends().is_sorted());
    }

    #[test]
    fn no_text_of_a_label_ends_it() {
        assert_eq!(EscapedLabel("a\"b\\c\nd").to_string(), "a\\\"b\\\\c\\nd");
        assert!(
            is_label_name("pool_1")
                && !is_label_name("1")
                && !is_label_name("")
                && !is_label_name("a-b")
        );
    }
}
