//! Gantt chart of a schedule: a row for each worker, time to the right; for terminals, and as SVG.

use super::jobs::SimulatedJob;
use super::schedule::{ScheduledSubtask, SimulatedSchedule};
use super::time;
use crate::svg::{COLOURS, SvgDrawing, TextAnchor};

/// How wide the picture is on a terminal, beside the workers' numbers.
const COLUMNS: u64 = 72;

/// Symbols of the jobs, in rotation.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

pub(super) fn letter(job: usize) -> char {
    char::from(LETTERS[job % LETTERS.len()])
}

/// Chart of the time up to `end`, which must be equal for charts that are compared. Each column
/// shows the job in the middle of its time.
pub(super) fn draw(schedule: &SimulatedSchedule, workers: usize, end: u64) -> String {
    let end = end.max(1);
    let mut rows = vec![vec!['·'; COLUMNS as usize]; workers];
    for bar in &schedule.bars {
        // The columns whose middles, (2c + 1) / 2 of a column's time, are within the bar.
        let column = |time: u64| {
            ((u128::from(time) * 2 * u128::from(COLUMNS)).div_ceil(u128::from(end))) / 2
        };
        for column in column(bar.start)..column(bar.end) {
            rows[bar.worker][column as usize] = letter(bar.job);
        }
    }
    let mut picture = String::new();
    for (worker, row) in rows.iter().enumerate() {
        picture.push_str(&format!("{:>4} {}\n", worker + 1, row.iter().collect::<String>()));
    }
    let end = time::show(end);
    picture + &format!("     0:00{end:>width$}", width = COLUMNS as usize - 4)
}

const LEFT: f64 = 60.0;
const WIDTH: f64 = 820.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 34.0;
const LEGEND: f64 = 26.0;

/// The legend is for jobs that have a colour of their own.
const MAX_NAMED: usize = COLOURS.len();
const FOOT: f64 = 30.0;

/// All schedules under one another, on one scale of time.
pub(super) fn svg(
    schedules: &[SimulatedSchedule],
    jobs: &[SimulatedJob],
    workers: usize,
) -> String {
    let panel = HEAD + ROW * workers as f64 + FOOT;
    let height = LEGEND + panel * schedules.len() as f64;
    let mut svg = SvgDrawing::new((LEFT + WIDTH + 30.0) as u32, height.ceil() as u32);
    let end = last_end(schedules).max(1);
    legend(&mut svg, jobs);
    for (number, schedule) in schedules.iter().enumerate() {
        let top = LEGEND + panel * number as f64 + HEAD;
        svg.text(LEFT, top - 12.0, TextAnchor::Start, schedule.policy);
        for worker in 0..workers {
            let y = top + ROW * worker as f64;
            svg.text(LEFT - 8.0, y + 15.0, TextAnchor::End, worker + 1);
        }
        for bar in &schedule.bars {
            let x = |time: u64| LEFT + WIDTH * time as f64 / end as f64;
            let at = (x(bar.start), top + ROW * bar.worker as f64);
            let size = ((x(bar.end) - at.0 - 1.0).max(0.5), ROW - 2.0);
            svg.bar(at, size, COLOURS[bar.job % COLOURS.len()], &tip(bar, jobs));
        }
        axis(&mut svg, top + ROW * workers as f64, end);
    }
    svg.finish()
}

/// Which colour is which job.
fn legend(svg: &mut SvgDrawing, jobs: &[SimulatedJob]) {
    for (number, job) in jobs.iter().enumerate().filter(|_| jobs.len() <= MAX_NAMED) {
        let x = LEFT + 100.0 * number as f64;
        svg.bar((x, 10.0), (12.0, 12.0), COLOURS[number % COLOURS.len()], &job.name);
        let name: String = job.name.chars().take(11).collect();
        svg.text(x + 18.0, 20.0, TextAnchor::Start, name);
    }
}

/// When the last of them is done.
pub(super) fn last_end(schedules: &[SimulatedSchedule]) -> u64 {
    schedules.iter().map(SimulatedSchedule::end).max().unwrap_or(0)
}

fn tip(bar: &ScheduledSubtask, jobs: &[SimulatedJob]) -> String {
    let (from, to) = (time::show(bar.start), time::show(bar.end));
    let rule = bar
        .rule
        .map_or(String::new(), |rule| format!(", rule: {}", format!("{rule:?}").to_lowercase()));
    format!("{} {}, {from} to {to}{rule}", jobs[bar.job].name, bar.subtask)
}

fn axis(svg: &mut SvgDrawing, y: f64, end: u64) {
    svg.rule((LEFT, y), (LEFT + WIDTH, y));
    let step = tick(end);
    for time in (0..=end).step_by(step as usize) {
        let x = LEFT + WIDTH * time as f64 / end as f64;
        svg.rule((x, y), (x, y + 4.0));
        svg.text(x, y + 17.0, TextAnchor::Middle, time::show(time));
    }
}

/// The least pleasant step that leaves no more than ten of them.
fn tick(end: u64) -> u64 {
    let pleasant =
        [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000];
    let minutes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_440].map(|m| m * 60_000);
    let mut steps = pleasant.into_iter().chain(minutes);
    steps.find(|step| end / step <= 10).unwrap_or(end.div_ceil(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_shows_what_ran_in_its_middle() {
        let bar = |worker, job, start, end| ScheduledSubtask {
            worker,
            job,
            subtask: 1,
            start,
            end,
            rule: None,
        };
        let schedule = SimulatedSchedule {
            policy: "x",
            bars: vec![
                bar(0, 0, 0, 500),
                bar(0, 1, 500, 1000),
                bar(1, 0, 250, 500),
                // The middle of the first column is at 6.9, that of the second at 20.8.
                bar(2, 1, 0, 7),
                bar(2, 0, 7, 20),
            ],
            finished: vec![500, 1000],
        };
        let picture = draw(&schedule, 3, 1000);
        let rows: Vec<_> = picture.lines().collect();
        assert_eq!(rows[0], format!("   1 {}{}", "A".repeat(36), "B".repeat(36)));
        let (before, after) = ("·".repeat(18), "·".repeat(36));
        assert_eq!(rows[1], format!("   2 {before}{}{after}", "A".repeat(18)));
        assert_eq!(rows[2], format!("   3 B{}", "·".repeat(71)));
        assert!(rows[3].ends_with("0:01"), "{picture}");
    }
}
