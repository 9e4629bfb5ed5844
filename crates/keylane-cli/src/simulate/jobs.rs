//! Jobs of a simulation, from a CSV file.

use std::io::Read;

use anyhow::{anyhow, ensure};

use super::time;

/// More than this in all is a mistake in the file, and would fill the memory.
const MAX_SUBTASKS: usize = 10_000_000;
const TOO_MANY: &str = "more than ten million subtasks";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SimulatedJob {
    pub(super) name: String,
    /// When it comes, in milliseconds.
    pub(super) arrival: u64,
    /// Durations of its subtasks, in the order in which they are split off.
    pub(super) lengths: Vec<u64>,
    pub(super) weight: u32,
}

impl SimulatedJob {
    /// Sum of the durations.
    pub(super) fn work(&self) -> u64 {
        self.lengths.iter().sum()
    }

    /// The least time that it could take with all workers to itself.
    pub(super) fn least_time(&self, workers: usize) -> u64 {
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        longest.max(self.work().div_ceil(workers as u64))
    }
}

/// The columns that a file must have, in any order.
const COLUMNS: [&str; 4] = ["name", "arrival", "subtasks", "length"];

/// Reads `name,arrival,subtasks,length[,weight]`, with a header. A length is one for all subtasks,
/// or several with semicolons, which are used in turns. The jobs come back by arrival.
pub(super) fn read(from: impl Read) -> anyhow::Result<Vec<SimulatedJob>> {
    let mut rows =
        csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(from);
    let header = rows.headers()?.clone();
    let column = |name: &str| header.iter().position(|column| column == name);
    let needed = COLUMNS.map(column);
    ensure!(
        needed.iter().all(Option::is_some),
        "the columns are name,arrival,subtasks,length and, if you like, weight"
    );
    let (needed, weight) = (needed.map(|column| column.expect("just looked")), column("weight"));

    let mut jobs = Vec::new();
    let mut subtasks = 0_usize;
    for row in rows.records() {
        let row = row?;
        let job = job(needed.map(|column| &row[column]), weight.map(|column| &row[column]));
        let job = job.map_err(|error| anyhow!("job `{}`: {error}", &row[needed[0]]))?;
        subtasks += job.lengths.len();
        ensure!(subtasks <= MAX_SUBTASKS, TOO_MANY);
        jobs.push(job);
    }
    ensure!(!jobs.is_empty(), "there are no jobs");
    jobs.sort_by_key(|job| job.arrival);
    Ok(jobs)
}

fn job(
    [name, arrival, subtasks, length]: [&str; 4],
    weight: Option<&str>,
) -> Result<SimulatedJob, String> {
    let count: usize = subtasks.parse().map_err(|_| format!("`{subtasks}` is no number"))?;
    if count > MAX_SUBTASKS {
        return Err(TOO_MANY.to_owned());
    }
    let lengths = length.split(';').map(time::parse).collect::<Result<Vec<_>, _>>()?;
    let weight = weight.filter(|weight| !weight.is_empty()).map(str::parse).transpose();
    Ok(SimulatedJob {
        name: name.to_owned(),
        arrival: time::parse(arrival)?,
        lengths: lengths.into_iter().cycle().take(count).collect(),
        weight: weight.map_err(|_| "the weight is no number".to_owned())?.unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_in_the_order_of_their_arrival() {
        let jobs = read(
            "name,arrival,subtasks,length\n# a comment\nlate, 2:01, 3, 60;30\nearly,0,1,1\n"
                .as_bytes(),
        )
        .unwrap();
        assert_eq!(jobs[0].name, "early");
        assert_eq!(jobs[1].lengths, [60_000, 30_000, 60_000]);
        assert_eq!((jobs[1].work(), jobs[1].least_time(8)), (150_000, 60_000));
        assert_eq!(jobs[1].least_time(2), 75_000);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |csv: &str| format!("{:#}", read(csv.as_bytes()).unwrap_err());
        assert!(error("name,arrival\nx,1").contains("name,arrival,subtasks,length"));
        assert!(error("name,arrival,subtasks,length\nx,soon,1,1").contains("job `x`: `soon`"));
        assert!(error("name,arrival,subtasks,length\n").contains("no jobs"));
        assert!(
            error("name,arrival,subtasks,length\nx,0,99999999999,1")
                .contains("more than ten million")
        );
    }
}
