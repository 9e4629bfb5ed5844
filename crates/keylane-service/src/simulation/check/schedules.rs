//! Rules for schedules: each moment makes at most one job, and none is missing without faults.

use std::collections::BTreeSet;

use super::state::{Settings, State};
use crate::simulation::history::ScheduleChange;

/// Time after a moment at which its job is there for certain, in milliseconds.
const LATE: u64 = 15_000;

const MINUTE: u64 = 60_000;

impl State {
    pub(super) fn scheduling(&mut self, schedule: u8, change: ScheduleChange) {
        let state = self.schedules.entry(schedule).or_default();
        state.active_since = None;
        match change {
            ScheduleChange::Set { cron, skips_overlap, .. } => {
                let period = if cron == "* * * * *" { MINUTE } else { 2 * MINUTE };
                state.settings.push(Settings { period, skips_overlap });
            }
            ScheduleChange::Remove => state.is_removed = true,
            ScheduleChange::Pause | ScheduleChange::Resume => {}
        }
    }

    pub(super) fn scheduled(&mut self, schedule: u8, change: ScheduleChange, status: u16) {
        let wall = self.wall;
        let state = self.schedules.entry(schedule).or_default();
        let is_active = matches!(change, ScheduleChange::Resume);
        // A replaced schedule stays paused, and a new one is not.
        let is_first = state.settings.len() == 1 && matches!(change, ScheduleChange::Set { .. });
        if (200..300).contains(&status) && (is_active || is_first) {
            state.active_since = Some(wall);
        }
    }

    /// With `overlap: skip` two jobs never run at the same time.
    pub(super) fn scheduled_run(&mut self, schedule: u8, id: &str, begins: bool) {
        let state = self.schedules.entry(schedule).or_default();
        if !begins {
            state.running.remove(id);
            return;
        }
        let skips = state.settings.iter().all(|settings| settings.skips_overlap);
        let other = state.running.iter().find(|other| *other != id).cloned();
        state.running.insert(id.to_owned());
        if let Some(other) = other.filter(|_| skips && !state.is_removed) {
            self.fail(format!("{id} of schedule {schedule} runs beside {other}"));
        }
    }

    /// Each moment has at most one job, moments without faults have one, and the number is right.
    pub(super) fn fired(&mut self, schedule: u8, jobs: &[(String, u64)], fired: u64) {
        let mut wrong = Vec::new();
        let mut moments = BTreeSet::new();
        let state = self.schedules.entry(schedule).or_default();
        let Some(Settings { skips_overlap, .. }) = state.settings.last().copied() else {
            return self.fail(format!("schedule {schedule} was never set"));
        };
        let period = state.settings.iter().map(|settings| settings.period).min().unwrap_or(MINUTE);
        for (id, moment) in jobs {
            if !moments.insert(*moment) && !state.is_removed {
                wrong.push(format!("{id} is another job for {moment}"));
            }
            if moment % period != 0 {
                wrong.push(format!("{id} is for {moment}, which is no time of it"));
            }
            if *moment > self.wall {
                wrong.push(format!("{id} is for {moment}, which is in the future"));
            }
        }
        let keeps_all = self.keep > 24 * 3_600_000;
        if keeps_all && !state.is_removed && fired != jobs.len() as u64 {
            wrong.push(format!("it has fired {fired} times, and has {} jobs", jobs.len()));
        }
        let period = state.settings.last().map_or(MINUTE, |settings| settings.period);
        if let Some(since) =
            state.active_since.filter(|_| !skips_overlap && keeps_all && self.is_healed)
        {
            let from = since.max(self.healed_at) + 1;
            let until = self.wall.saturating_sub(LATE);
            let expected = (from.div_ceil(period)..).map(|number| number * period);
            for moment in expected.take_while(|moment| *moment < until) {
                if !moments.contains(&moment) {
                    wrong.push(format!("there is no job for {moment}"));
                }
            }
        }
        wrong.into_iter().for_each(|why| self.fail(format!("schedule {schedule}: {why}")));
    }
}
