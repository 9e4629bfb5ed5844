//! Decides where a partition starts, and where it continues if its next record does not exist.

use super::ffi::TopicId;
use super::metadata_thread::{CommittedOffset, OffsetBounds};
use super::settings::{RecreatedTopic, StartFrom};
use super::topic_partition::TopicPartition;
use crate::Position;
use crate::source::{Partition, SourceError};
use crate::tracker::{
    DecodedMap, OffsetMapError, OffsetMapPolicy, Progress, UnreadableMapPolicy, decode,
    highest_epoch,
};

/// The user's settings for starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartPolicy {
    pub(super) start: StartFrom,
    pub(super) out_of_range: StartFrom,
    pub(super) policy: OffsetMapPolicy,
    pub(super) recreated_topic: RecreatedTopic,
}

/// Start of a partition, by the committed offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartAt {
    /// At this progress.
    At(Progress),
    /// At the first record.
    First,
    /// After the last record.
    Last,
}

/// Continuation of a partition whose next record may not exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartAction {
    /// At this position, which exists. All records delivered before are valid.
    Seek(Position),
    /// At this position. The records before it that were not delivered are skipped.
    Skip(Position),
    /// At the watermark of this progress, as a new assignment. The number counts the skipped
    /// positions.
    Anew(Progress, u64),
}

/// State of a partition whose next record may not exist.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadState<'a> {
    /// Topic id at the assignment.
    pub(super) id: Option<TopicId>,
    /// Next position to deliver.
    pub(super) next: Position,
    /// Watermark of the last commit.
    pub(super) stored: Position,
    /// Progress at the assignment.
    pub(super) begun: &'a Progress,
    /// Position where the log was truncated, if leader epochs show that: it has other records from
    /// there on.
    pub(super) truncated_at: Option<Position>,
}

/// A decision, with a notice for the operator.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StartDecision<T> {
    pub(super) what: T,
    pub(super) notice: Option<String>,
}

impl<T> StartDecision<T> {
    fn silent(what: T) -> Self {
        StartDecision { what, notice: None }
    }

    fn with_notice(what: T, notice: String) -> Self {
        StartDecision { what, notice: Some(notice) }
    }
}

/// Remedy for a partition whose next record does not exist.
const OUT_OF_RANGE_REMEDY: &str = "set out_of_range to first or last (--out-of-range), or choose \
     the group's offsets with kafka-consumer-groups --reset-offsets";

/// Remedy for progress that cannot be read.
const FOREIGN_REMEDY: &str = "set policy.unreadable to Repeat (--foreign-progress repeat), or choose the \
     group's offsets with kafka-consumer-groups --reset-offsets";

/// Returns the number of incomplete positions from `next` to `to`.
pub(super) fn open(begun: &Progress, next: Position, to: Position) -> u64 {
    let below_end = begun.end().min(to);
    let in_map = (next.get()..below_end.get()).filter(|at| !begun.is_done(Position::new(*at)));
    in_map.count() as u64 + (to.get() - next.max(below_end).get())
}

/// Returns the identity of a partition's progress: by topic id, or by name if the broker has no
/// ids.
pub(super) fn identity(name: &TopicPartition, id: Option<TopicId>) -> Vec<u8> {
    match id {
        Some(id) => [&id.bytes()[..], &name.number.to_be_bytes()].concat(),
        None => format!("{}[{}]", name.topic, name.number).into_bytes(),
    }
}

/// Returns the leader epochs of a commit: of the record before the offset, and the highest one of
/// the map. A `KL1` map has none.
pub(super) fn epochs_of(committed: &CommittedOffset) -> (Option<u32>, Option<u32>) {
    (committed.epoch, highest_epoch(&committed.metadata))
}

impl StartPolicy {
    /// Decides where a partition with this commit starts.
    ///
    /// # Errors
    /// If the policy requires an operator's decision.
    pub(super) fn start_at(
        &self,
        committed: &CommittedOffset,
    ) -> Result<StartDecision<StartAt>, SourceError> {
        let partition = committed.name.partition();
        let Some(at) = committed.at.and_then(Position::checked) else {
            return match self.start {
                StartFrom::First => Ok(StartDecision::silent(StartAt::First)),
                StartFrom::Last => Ok(StartDecision::silent(StartAt::Last)),
                StartFrom::Refuse => Err(SourceError::new(format!(
                    "the group has no committed offset for {partition}, and the settings refuse \
                     to choose a start"
                ))),
            };
        };
        let refuse = OffsetMapPolicy { unreadable: UnreadableMapPolicy::Refuse, ..self.policy };
        let read_as = |stream: &[u8], policy| decode(at, &committed.metadata, stream, policy);
        let by_id = identity(&committed.name, committed.id);
        let mut found = read_as(&by_id, refuse);
        if found == Err(OffsetMapError::OtherStream) && committed.id.is_some() {
            // Committed when the broker had no ids yet.
            found = read_as(&identity(&committed.name, None), refuse);
        }
        match found {
            Err(OffsetMapError::OtherStream) => {
                self.recreated_topic(&partition.to_string(), StartAt::First)
            }
            Err(error) => match read_as(&by_id, self.policy) {
                Ok(found) => Ok(StartDecision::with_notice(
                    StartAt::At(found.into_progress()),
                    format!("{partition} is repeated from {at} on: {error}"),
                )),
                Err(error) => {
                    let what = format!("the committed metadata of {partition} cannot be used");
                    Err(SourceError::because(
                        match error {
                            // It names its own remedy.
                            OffsetMapError::Later => what,
                            _ => format!("{what}; {FOREIGN_REMEDY}"),
                        },
                        error,
                    ))
                }
            },
            Ok(DecodedMap::TakenOver(progress)) => {
                let notice =
                    format!("{partition} continues at {at}, where the parallel consumer stopped");
                Ok(StartDecision::with_notice(StartAt::At(progress), notice))
            }
            Ok(found) => Ok(StartDecision::silent(StartAt::At(found.into_progress()))),
        }
    }

    /// Decides where a partition starts that this source may have had before, when its topic had
    /// the id `known`.
    ///
    /// # Errors
    /// If the policy requires an operator's decision.
    pub(super) fn start_again_at(
        &self,
        known: Option<TopicId>,
        committed: &CommittedOffset,
    ) -> Result<StartDecision<StartAt>, SourceError> {
        // Brokers delete the commits of a deleted topic.
        if committed.at.is_none()
            && known.is_some()
            && committed.id.is_some()
            && known != committed.id
        {
            return self.recreated_topic(&committed.name.partition().to_string(), StartAt::First);
        }
        self.start_at(committed)
    }

    /// Decides where a partition with this offset range continues.
    ///
    /// # Errors
    /// If the policy requires an operator's decision.
    pub(super) fn continue_at(
        &self,
        place: ReadState<'_>,
        bounds: &OffsetBounds,
    ) -> Result<StartDecision<StartAction>, SourceError> {
        let partition = bounds.name.partition();
        let checked = |offset| Position::checked(offset).unwrap_or_default();
        let (first, end) = (checked(bounds.first), checked(bounds.end));
        let ReadState { id, next, .. } = place;
        let other = id.is_some() && bounds.id.is_some() && id != bounds.id;
        // Without ids, a recreated topic looks like a truncated one.
        let may_be_other = bounds.id.is_none() && next > end;
        if other || may_be_other {
            let from_first = StartAction::Anew(Progress::up_to(first), 0);
            return self.recreated_topic(&partition.to_string(), from_first);
        }
        let truncated_at = if next > end {
            Some(place.truncated_at.map_or(end, |truncated_at| truncated_at.min(end)))
        } else {
            place.truncated_at
        };
        match truncated_at {
            Some(truncated_at) => self.truncated(place, truncated_at.max(first), end, &partition),
            None if next < first => self.removed(place, first, end, &partition),
            None => Ok(StartDecision::silent(StartAction::Seek(next))),
        }
    }

    /// Handles records from `next` to `first` that were removed.
    fn removed(
        &self,
        place: ReadState<'_>,
        first: Position,
        end: Position,
        partition: &Partition,
    ) -> Result<StartDecision<StartAction>, SourceError> {
        let next = place.next;
        let gone = open(place.begun, next, first);
        let what = format!(
            "{partition} begins at {first}, and {next} would have been next: at most {gone} records \
             were removed before they were read"
        );
        let to = match self.out_of_range {
            StartFrom::First => first,
            StartFrom::Last => end,
            StartFrom::Refuse => {
                return Err(SourceError::new(format!("{what}; {OUT_OF_RANGE_REMEDY}")));
            }
        };
        let notice = format!("{what}; it continues at {to}");
        Ok(StartDecision::with_notice(StartAction::Skip(to), notice))
    }

    /// Handles a log that was truncated at `truncated_at`.
    fn truncated(
        &self,
        place: ReadState<'_>,
        truncated_at: Position,
        end: Position,
        partition: &Partition,
    ) -> Result<StartDecision<StartAction>, SourceError> {
        let next = place.next;
        let what = format!(
            "{partition} was truncated to {truncated_at}, and {next} would have been next: brokers \
             have lost records, or the group was set beyond the end"
        );
        // Records that were not committed are handled again.
        let begin = place.stored.min(truncated_at);
        let to = match self.out_of_range {
            StartFrom::First => begin,
            StartFrom::Last => end,
            StartFrom::Refuse => {
                return Err(SourceError::new(format!("{what}; {OUT_OF_RANGE_REMEDY}")));
            }
        };
        let notice = format!("{what}; it continues at {to}");
        let missed = to.get() - begin.get();
        Ok(StartDecision::with_notice(StartAction::Anew(Progress::up_to(to), missed), notice))
    }

    fn recreated_topic<T>(
        &self,
        partition: &str,
        from_first: T,
    ) -> Result<StartDecision<T>, SourceError> {
        let what = format!("the topic of {partition} was deleted and recreated");
        match self.recreated_topic {
            RecreatedTopic::FromFirst => Ok(StartDecision::with_notice(
                from_first,
                format!("{what}: it is read from its first record"),
            )),
            RecreatedTopic::Refuse => Err(SourceError::new(what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Position = Position::new;

    fn rules() -> StartPolicy {
        StartPolicy {
            start: StartFrom::First,
            out_of_range: StartFrom::First,
            policy: OffsetMapPolicy::default(),
            recreated_topic: RecreatedTopic::FromFirst,
        }
    }

    fn name() -> TopicPartition {
        TopicPartition { topic: "orders".to_owned(), number: 3 }
    }

    fn committed(at: Option<i64>, metadata: &str, id: Option<u8>) -> CommittedOffset {
        CommittedOffset {
            name: name(),
            id: id.map(TopicId::of),
            at,
            metadata: metadata.to_owned(),
            epoch: None,
        }
    }

    fn bounds(first: i64, end: i64, id: Option<u8>) -> OffsetBounds {
        OffsetBounds { name: name(), id: id.map(TopicId::of), first, end }
    }

    fn progress() -> Progress {
        Progress::with_map(AT(10), AT(20), vec![AT(15)])
    }

    fn text(id: Option<u8>) -> String {
        progress().encode(&identity(&name(), id.map(TopicId::of)))
    }

    #[test]
    fn a_group_without_commits_begins_where_the_user_says() {
        for (start, begin) in [(StartFrom::First, StartAt::First), (StartFrom::Last, StartAt::Last)]
        {
            let decided =
                StartPolicy { start, ..rules() }.start_at(&committed(None, "", Some(1))).unwrap();
            assert_eq!(decided, StartDecision::silent(begin));
        }
        let refuse = StartPolicy { start: StartFrom::Refuse, ..rules() };
        refuse.start_at(&committed(None, "", Some(1))).unwrap_err();
    }

    #[test]
    fn a_map_is_believed_of_its_own_topic_only() {
        let own = rules().start_at(&committed(Some(10), &text(Some(1)), Some(1))).unwrap();
        assert_eq!(own, StartDecision::silent(StartAt::At(progress())));

        let other = committed(Some(10), &text(Some(1)), Some(2));
        assert_eq!(rules().start_at(&other).unwrap().what, StartAt::First);
        StartPolicy { recreated_topic: RecreatedTopic::Refuse, ..rules() }
            .start_at(&other)
            .unwrap_err();

        // Repeating unreadable progress is no reason to skip the beginning of another topic.
        let policy = OffsetMapPolicy {
            unreadable: UnreadableMapPolicy::Repeat,
            ..OffsetMapPolicy::default()
        };
        assert_eq!(
            StartPolicy { policy, ..rules() }.start_at(&other).unwrap().what,
            StartAt::First
        );
    }

    #[test]
    fn a_map_from_before_the_broker_had_ids_is_believed() {
        let decided = rules().start_at(&committed(Some(10), &text(None), Some(1))).unwrap();
        assert_eq!(decided, StartDecision::silent(StartAt::At(progress())));
    }

    #[test]
    fn foreign_metadata_is_refused_or_repeated_by_the_users_policy() {
        let foreign = committed(Some(10), "somebody else's words", Some(1));
        rules().start_at(&foreign).unwrap_err();
        let policy = OffsetMapPolicy {
            unreadable: UnreadableMapPolicy::Repeat,
            ..OffsetMapPolicy::default()
        };
        let decided = StartPolicy { policy, ..rules() }.start_at(&foreign).unwrap();
        assert_eq!(decided.what, StartAt::At(Progress::up_to(AT(10))));
        assert!(decided.notice.is_some());
    }

    /// Continues a partition that was assigned at `stored`, without a map.
    fn go_on(
        start_policy: StartPolicy,
        id: Option<u8>,
        (next, stored, truncated_at): (u64, u64, Option<u64>),
        bounds: &OffsetBounds,
    ) -> Result<StartDecision<StartAction>, SourceError> {
        let begun = Progress::up_to(AT(stored));
        let (id, truncated_at) = (id.map(TopicId::of), truncated_at.map(AT));
        start_policy.continue_at(
            ReadState { id, next: AT(next), stored: AT(stored), begun: &begun, truncated_at },
            bounds,
        )
    }

    fn out_of_range(out_of_range: StartFrom) -> StartPolicy {
        StartPolicy { out_of_range, ..rules() }
    }

    #[test]
    fn a_place_that_exists_is_gone_back_to() {
        for next in [5, 9, 20] {
            let decided = go_on(rules(), None, (next, 5, None), &bounds(5, 20, None)).unwrap();
            assert_eq!(decided, StartDecision::silent(StartAction::Seek(AT(next))));
        }
    }

    #[test]
    fn records_removed_by_retention_are_skipped_only_by_policy() {
        let of = |rules| go_on(rules, Some(1), (4, 2, None), &bounds(7, 20, Some(1)));
        for (rule, to) in [(StartFrom::First, 7), (StartFrom::Last, 20)] {
            let decided = of(out_of_range(rule)).unwrap();
            assert_eq!(decided.what, StartAction::Skip(AT(to)));
            assert!(decided.notice.unwrap().contains("at most 3 records"));
        }
        let refused = of(out_of_range(StartFrom::Refuse)).unwrap_err().to_string();
        assert!(refused.contains("orders[3]") && refused.contains("--out-of-range"), "{refused}");
    }

    #[test]
    fn positions_completed_in_the_map_are_not_counted_as_missed() {
        // 10 and 15 are open, and 20 to 24.
        assert_eq!(open(&progress(), AT(10), AT(25)), 7);
        assert_eq!(open(&progress(), AT(10), AT(16)), 2);
        assert_eq!(open(&progress(), AT(22), AT(25)), 3);
    }

    #[test]
    fn a_stream_that_was_cut_is_begun_anew_and_repeats_what_was_not_committed() {
        for (stored, expected) in [(12, 12), (21, 20)] {
            let decided =
                go_on(rules(), Some(1), (25, stored, None), &bounds(5, 20, Some(1))).unwrap();
            assert_eq!(decided.what, StartAction::Anew(Progress::up_to(AT(expected)), 0));
        }
        let last =
            go_on(out_of_range(StartFrom::Last), Some(1), (25, 12, None), &bounds(5, 20, Some(1)));
        assert_eq!(last.unwrap().what, StartAction::Anew(Progress::up_to(AT(20)), 8));
        go_on(out_of_range(StartFrom::Refuse), Some(1), (25, 12, None), &bounds(5, 20, Some(1)))
            .unwrap_err();
    }

    #[test]
    fn a_stream_that_was_cut_and_grew_again_is_begun_where_it_was_cut() {
        for (stored, truncated_at, expected) in [(12, 8, 8), (12, 15, 12), (12, 3, 5)] {
            let bounds = bounds(5, 40, Some(1));
            let decided =
                go_on(rules(), Some(1), (25, stored, Some(truncated_at)), &bounds).unwrap();
            assert_eq!(decided.what, StartAction::Anew(Progress::up_to(AT(expected)), 0));
            assert!(decided.notice.is_some());
        }
    }

    #[test]
    fn a_topic_that_was_made_again_is_read_from_its_first_record_wherever_it_ends() {
        let anew = StartAction::Anew(Progress::up_to(AT(0)), 0);
        for end in [3, 100] {
            let bounds = bounds(0, end, Some(2));
            let decided = go_on(rules(), Some(1), (25, 12, None), &bounds).unwrap();
            assert_eq!(decided.what, anew);
            let refuse = StartPolicy { recreated_topic: RecreatedTopic::Refuse, ..rules() };
            go_on(refuse, Some(1), (25, 12, None), &bounds).unwrap_err();
        }
        // An old broker has no ids; repeating records is better than losing them.
        let decided = go_on(rules(), None, (25, 12, None), &bounds(0, 3, None)).unwrap();
        assert_eq!(decided.what, anew);
    }
}
