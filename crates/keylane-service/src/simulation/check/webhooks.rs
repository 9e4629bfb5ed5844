//! Rules for webhooks: every end of a job that has one is delivered, once it is on the disk.

use super::state::State;

impl State {
    /// A webhook is sent with the end of its job, and that end is on the disk: nothing of the job runs again. With one id
    /// it always says the same.
    pub(super) fn delivered(&mut self, number: usize, id: &str, ended: &str, accepted: bool) {
        let job = &mut self.jobs[number];
        let mut wrong = Vec::new();
        if !job.spec.has_webhook() {
            wrong.push("has no webhook");
        }
        if !["succeeded", "failed", "cancelled"].contains(&ended) {
            wrong.push("has not ended");
        }
        let said = job.webhooks.entry(id.to_owned()).or_insert((ended.to_owned(), false));
        if said.0 != ended {
            wrong.push("said something else with this id");
        }
        said.1 |= accepted;
        let last = job.last_read.as_ref().filter(|_| job.is_over && !job.is_retried);
        if last.is_some_and(|(_, last)| last.state != ended) {
            wrong.push("was read with another end");
        }
        for why in wrong {
            self.fail(format!("job {number} {why}: webhook {id}, {ended}"));
        }
        if !self.jobs[number].is_retried {
            self.settle(number);
        }
    }

    /// Returns the jobs that have ended, and whose ends were not delivered.
    pub(super) fn undelivered(&self) -> Vec<String> {
        let ended = self.jobs.iter().enumerate().filter(|(_, job)| job.is_over || job.is_gone);
        let silent = ended.filter(|(_, job)| {
            let is_delivered = job.webhooks.values().any(|(_, accepted)| *accepted);
            job.spec.has_webhook() && !is_delivered
        });
        silent.map(|(number, _)| format!("the end of job {number} was not delivered")).collect()
    }
}
