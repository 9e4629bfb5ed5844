//! Decides where a partition is begun, and where it goes on when its place turns out not to exist.

use super::ffi::TopicId;
use super::metadata_thread::{CommittedOffset, OffsetBounds};
use super::settings::{RecreatedTopic, StartFrom};
use super::topic_partition::TopicPartition;
use crate::Position;
use crate::source::{Partition, SourceError};
use crate::tracker::{
    DecodedMap, MapError, MapPolicy, Progress, UnreadableMapPolicy, decode, highest_epoch,
};

/// What the user decided about beginnings.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartPolicy {
    pub(super) start: StartFrom,
    pub(super) out_of_range: StartFrom,
    pub(super) policy: MapPolicy,
    pub(super) recreated_topic: RecreatedTopic,
}

/// Where a partition begins, as far as what is committed says it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StartAt {
    /// What is done.
    At(Progress),
    /// Wherever the first record is.
    First,
    /// Behind the last record.
    Last,
}

/// Where a partition continues whose next position has to be looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// At this position, which exists: all that was delivered before still holds.
    Seek(Position),
    /// At this position, and the records before it that were not delivered are passed over.
    Skip(Position),
    /// At the watermark of this progress, as if it were assigned for the first time. The number is that of the
    /// positions that are passed over.
    Anew(Progress, u64),
}

/// What is known of a partition whose next position has to be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadState<'a> {
    /// The id of its topic when it was assigned.
    pub(super) id: Option<TopicId>,
    /// The position that would be delivered next.
    pub(super) next: Position,
    /// The watermark that was committed last.
    pub(super) stored: Position,
    /// What was done when it was assigned.
    pub(super) begun: &'a Progress,
    /// Where its log was truncated_at, if leader epochs show that it was: from there on it has other records.
    pub(super) truncated_at: Option<Position>,
}

/// A decision, and what a person should know of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision<T> {
    pub(super) what: T,
    pub(super) notice: Option<String>,
}

impl<T> Decision<T> {
    fn silent(what: T) -> Self {
        Decision { what, notice: None }
    }

    fn with_notice(what: T, notice: String) -> Self {
        Decision { what, notice: Some(notice) }
    }
}

/// What to do about a partition whose next record does not exist.
const OUT_OF_RANGE_REMEDY: &str = "set out_of_range to first or last (--out-of-range), or choose the group's offsets with \
                      kafka-consumer-groups --reset-offsets";

/// How many positions from `next` to `to` are not done.
pub(super) fn open(begun: &Progress, next: Position, to: Position) -> u64 {
    let below_end = begun.end().min(to);
    let in_map = (next.get()..below_end.get()).filter(|at| !begun.is_done(Position::new(*at)));
    in_map.count() as u64 + (to.get() - next.max(below_end).get())
}

/// What progress of a partition belongs to: its topic's id, or the name if the broker has no ids.
pub(super) fn identity(name: &TopicPartition, id: Option<TopicId>) -> Vec<u8> {
    match id {
        Some(id) => [&id.bytes()[..], &name.number.to_be_bytes()].concat(),
        None => format!("{}[{}]", name.topic, name.number).into_bytes(),
    }
}

/// Leader epochs of what is committed: of the record before the offset, and the highest one of the map. A `KL1` map
/// has none.
pub(super) fn epochs_of(committed: &CommittedOffset) -> (Option<u32>, Option<u32>) {
    (committed.epoch, highest_epoch(&committed.metadata))
}

impl StartPolicy {
    /// Where a partition begins of which this is committed.
    ///
    /// # Errors
    /// If the rules say that a person decides.
    pub(super) fn start_at(
        &self,
        committed: &CommittedOffset,
    ) -> Result<Decision<StartAt>, SourceError> {
        let partition = committed.name.partition();
        let Some(at) = committed.at.and_then(Position::checked) else {
            return match self.start {
                StartFrom::First => Ok(Decision::silent(StartAt::First)),
                StartFrom::Last => Ok(Decision::silent(StartAt::Last)),
                StartFrom::Refuse => Err(SourceError::new(format!(
                    "the group has committed nothing for {partition}"
                ))),
            };
        };
        let refuse = MapPolicy { unreadable: UnreadableMapPolicy::Refuse, ..self.policy };
        let read_as = |stream: &[u8], policy| decode(at, &committed.metadata, stream, policy);
        let by_id = identity(&committed.name, committed.id);
        let mut found = read_as(&by_id, refuse);
        if found == Err(MapError::OtherStream) && committed.id.is_some() {
            // Written when the broker had no ids yet.
            found = read_as(&identity(&committed.name, None), refuse);
        }
        match found {
            Err(MapError::OtherStream) => {
                self.recreated_topic(&partition.to_string(), StartAt::First)
            }
            Err(error) => match read_as(&by_id, self.policy) {
                Ok(found) => Ok(Decision::with_notice(
                    StartAt::At(found.into_progress()),
                    format!("{partition} is repeated from {at} on: {error}"),
                )),
                Err(error) => Err(SourceError::because(
                    format!("what is committed for {partition} cannot be used"),
                    error,
                )),
            },
            Ok(DecodedMap::TakenOver(progress)) => {
                let notice =
                    format!("{partition} goes on where the parallel consumer was, at {at}");
                Ok(Decision::with_notice(StartAt::At(progress), notice))
            }
            Ok(found) => Ok(Decision::silent(StartAt::At(found.into_progress()))),
        }
    }

    /// Where a partition begins that this source may have had before, of the topic with the id `known`.
    ///
    /// # Errors
    /// If the rules say that a person decides.
    pub(super) fn start_again_at(
        &self,
        known: Option<TopicId>,
        committed: &CommittedOffset,
    ) -> Result<Decision<StartAt>, SourceError> {
        // Brokers forget what was committed for a topic that is deleted.
        if committed.at.is_none()
            && known.is_some()
            && committed.id.is_some()
            && known != committed.id
        {
            return self.recreated_topic(&committed.name.partition().to_string(), StartAt::First);
        }
        self.start_at(committed)
    }

    /// Where a partition continues that is within these bounds now.
    ///
    /// # Errors
    /// If the rules say that a person decides.
    pub(super) fn continue_at(
        &self,
        place: ReadState<'_>,
        bounds: &OffsetBounds,
    ) -> Result<Decision<Continuation>, SourceError> {
        let partition = bounds.name.partition();
        let checked = |offset| Position::checked(offset).unwrap_or_default();
        let (first, end) = (checked(bounds.first), checked(bounds.end));
        let ReadState { id, next, .. } = place;
        let other = id.is_some() && bounds.id.is_some() && id != bounds.id;
        // Without ids a topic that was made again looks like one that was truncated_at.
        let may_be_other = bounds.id.is_none() && next > end;
        if other || may_be_other {
            let from_first = Continuation::Anew(Progress::up_to(first), 0);
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
            None => Ok(Decision::silent(Continuation::Seek(next))),
        }
    }

    /// The records from `next` to `first` were removed.
    fn removed(
        &self,
        place: ReadState<'_>,
        first: Position,
        end: Position,
        partition: &Partition,
    ) -> Result<Decision<Continuation>, SourceError> {
        let next = place.next;
        let gone = open(place.begun, next, first);
        let what = format!(
            "{partition} begins at {first}, and {next} would have been next: at most {gone} records were removed \
             before they were read"
        );
        let to = match self.out_of_range {
            StartFrom::First => first,
            StartFrom::Last => end,
            StartFrom::Refuse => {
                return Err(SourceError::new(format!("{what}; {OUT_OF_RANGE_REMEDY}")));
            }
        };
        let notice = format!("{what}; it continues at {to}");
        Ok(Decision::with_notice(Continuation::Skip(to), notice))
    }

    /// From `truncated_at` on the log does not have the records any more that it had.
    fn truncated(
        &self,
        place: ReadState<'_>,
        truncated_at: Position,
        end: Position,
        partition: &Partition,
    ) -> Result<Decision<Continuation>, SourceError> {
        let next = place.next;
        let what = format!(
            "{partition} was truncated to {truncated_at}, and {next} would have been next: brokers have lost records, or the \
             group was set beyond the end"
        );
        // What was not committed is done again.
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
        Ok(Decision::with_notice(Continuation::Anew(Progress::up_to(to), missed), notice))
    }

    fn recreated_topic<T>(
        &self,
        partition: &str,
        from_first: T,
    ) -> Result<Decision<T>, SourceError> {
        let what = format!("the topic of {partition} was deleted and made again");
        match self.recreated_topic {
            RecreatedTopic::FromFirst => Ok(Decision::with_notice(
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
            policy: MapPolicy::default(),
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
            assert_eq!(decided, Decision::silent(begin));
        }
        let refuse = StartPolicy { start: StartFrom::Refuse, ..rules() };
        refuse.start_at(&committed(None, "", Some(1))).unwrap_err();
    }

    #[test]
    fn a_map_is_believed_of_its_own_topic_only() {
        let own = rules().start_at(&committed(Some(10), &text(Some(1)), Some(1))).unwrap();
        assert_eq!(own, Decision::silent(StartAt::At(progress())));

        let other = committed(Some(10), &text(Some(1)), Some(2));
        assert_eq!(rules().start_at(&other).unwrap().what, StartAt::First);
        StartPolicy { recreated_topic: RecreatedTopic::Refuse, ..rules() }
            .start_at(&other)
            .unwrap_err();

        // To repeat what is unreadable is no reason to skip the beginning of another topic.
        let policy = MapPolicy { unreadable: UnreadableMapPolicy::Repeat, ..MapPolicy::default() };
        assert_eq!(
            StartPolicy { policy, ..rules() }.start_at(&other).unwrap().what,
            StartAt::First
        );
    }

    #[test]
    fn a_map_from_before_the_broker_had_ids_is_believed() {
        let decided = rules().start_at(&committed(Some(10), &text(None), Some(1))).unwrap();
        assert_eq!(decided, Decision::silent(StartAt::At(progress())));
    }

    #[test]
    fn foreign_metadata_is_refused_or_repeated_by_the_users_policy() {
        let foreign = committed(Some(10), "somebody else's words", Some(1));
        rules().start_at(&foreign).unwrap_err();
        let policy = MapPolicy { unreadable: UnreadableMapPolicy::Repeat, ..MapPolicy::default() };
        let decided = StartPolicy { policy, ..rules() }.start_at(&foreign).unwrap();
        assert_eq!(decided.what, StartAt::At(Progress::up_to(AT(10))));
        assert!(decided.notice.is_some());
    }

    /// A place of a partition that was begun at `stored`, without a map.
    fn go_on(
        start_policy: StartPolicy,
        id: Option<u8>,
        (next, stored, truncated_at): (u64, u64, Option<u64>),
        bounds: &OffsetBounds,
    ) -> Result<Decision<Continuation>, SourceError> {
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
            assert_eq!(decided, Decision::silent(Continuation::Seek(AT(next))));
        }
    }

    #[test]
    fn what_retention_has_removed_is_passed_over_only_if_the_rules_say_so() {
        let of = |rules| go_on(rules, Some(1), (4, 2, None), &bounds(7, 20, Some(1)));
        for (rule, to) in [(StartFrom::First, 7), (StartFrom::Last, 20)] {
            let decided = of(out_of_range(rule)).unwrap();
            assert_eq!(decided.what, Continuation::Skip(AT(to)));
            assert!(decided.notice.unwrap().contains("at most 3 records"));
        }
        let refused = of(out_of_range(StartFrom::Refuse)).unwrap_err().to_string();
        assert!(refused.contains("orders[3]") && refused.contains("--out-of-range"), "{refused}");
    }

    #[test]
    fn what_the_map_has_as_done_is_not_missed() {
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
            assert_eq!(decided.what, Continuation::Anew(Progress::up_to(AT(expected)), 0));
        }
        let last =
            go_on(out_of_range(StartFrom::Last), Some(1), (25, 12, None), &bounds(5, 20, Some(1)));
        assert_eq!(last.unwrap().what, Continuation::Anew(Progress::up_to(AT(20)), 8));
        go_on(out_of_range(StartFrom::Refuse), Some(1), (25, 12, None), &bounds(5, 20, Some(1)))
            .unwrap_err();
    }

    #[test]
    fn a_stream_that_was_cut_and_grew_again_is_begun_where_it_was_cut() {
        for (stored, truncated_at, expected) in [(12, 8, 8), (12, 15, 12), (12, 3, 5)] {
            let bounds = bounds(5, 40, Some(1));
            let decided =
                go_on(rules(), Some(1), (25, stored, Some(truncated_at)), &bounds).unwrap();
            assert_eq!(decided.what, Continuation::Anew(Progress::up_to(AT(expected)), 0));
            assert!(decided.notice.is_some());
        }
    }

    #[test]
    fn a_topic_that_was_made_again_is_read_from_its_first_record_wherever_it_ends() {
        let anew = Continuation::Anew(Progress::up_to(AT(0)), 0);
        for end in [3, 100] {
            let bounds = bounds(0, end, Some(2));
            let decided = go_on(rules(), Some(1), (25, 12, None), &bounds).unwrap();
            assert_eq!(decided.what, anew);
            let refuse = StartPolicy { recreated_topic: RecreatedTopic::Refuse, ..rules() };
            go_on(refuse, Some(1), (25, 12, None), &bounds).unwrap_err();
        }
        // An old broker does not say that it was; what would be lost is worse than what is repeated.
        let decided = go_on(rules(), None, (25, 12, None), &bounds(0, 3, None)).unwrap();
        assert_eq!(decided.what, anew);
    }
}
