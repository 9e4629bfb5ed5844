//! Options that select jobs by what they are.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

/// Filter of jobs: those for which all given options hold.
#[derive(Debug, Default, Args)]
pub(super) struct JobFilter {
    /// Only jobs in these states, with commas between: scheduled, queued,
    /// running, paused, cancelling, succeeded, failed, cancelled.
    #[arg(long, value_name = "STATE,…", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "ids")]
    state: Option<String>,

    /// Only jobs of this kind.
    #[arg(long, value_name = "KIND", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "ids")]
    kind: Option<String>,

    /// Only jobs of this tenant.
    #[arg(long, value_name = "TENANT", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "ids")]
    tenant: Option<String>,

    /// Only jobs with this label.
    #[arg(long, value_name = "NAME=VALUE", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "ids")]
    label: Option<String>,

    /// Only jobs whose id or name contains this text.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "ids")]
    search: Option<String>,
}

impl JobFilter {
    /// Returns whether no option is given: all jobs match.
    pub(super) fn is_empty(&self) -> bool {
        self.parameters().is_empty()
    }

    /// Returns the parameters of the query for these jobs.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let label = self.label.as_ref().map(|label| label.replacen('=', ":", 1));
        let all = [
            ("state", &self.state),
            ("kind", &self.kind),
            ("tenant", &self.tenant),
            ("label", &label),
            ("q", &self.search),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    /// Returns the parameters with these states, unless the filter names others.
    pub(super) fn parameters_in(&self, states: &str) -> Vec<(&'static str, String)> {
        let mut parameters = self.parameters();
        if self.state.is_none() {
            parameters.push(("state", states.to_owned()));
        }
        parameters
    }
}
