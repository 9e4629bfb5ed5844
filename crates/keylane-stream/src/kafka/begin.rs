//! Decides where a partition is begun, and where it goes on when its place turns out not to exist.

use super::lookup::{Bounds, Committed};
use super::names::Name;
use super::native::TopicId;
use super::settings::{Renewed, Start};
use crate::Position;
use crate::source::SourceError;
use crate::tracker::{Found, MapError, Policy, Progress, Unreadable, read};

/// What the user decided about beginnings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) start: Start,
    pub(super) policy: Policy,
    pub(super) renewed: Renewed,
}

/// Where a partition begins, as far as what is committed says it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// What is done.
    At(Progress),
    /// Wherever the first record is.
    First,
    /// Behind the last record.
    Last,
}

/// Where a partition goes on whose place does not exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GoOn {
    /// There; all that was delivered before still holds.
    Seek(Position),
    /// There, as if it were assigned for the first time.
    Anew(Progress),
}

/// A decision, and what a person should know of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decided<T> {
    pub(super) what: T,
    pub(super) notice: Option<String>,
}

impl<T> Decided<T> {
    fn quietly(what: T) -> Self {
        Decided { what, notice: None }
    }

    fn saying(what: T, notice: String) -> Self {
        Decided { what, notice: Some(notice) }
    }
}

/// What progress of a partition belongs to: its topic's id, or the name if the broker has no ids.
pub(super) fn identity(name: &Name, id: Option<TopicId>) -> Vec<u8> {
    match id {
        Some(id) => [&id.bytes()[..], &name.number.to_be_bytes()].concat(),
        None => format!("{}[{}]", name.topic, name.number).into_bytes(),
    }
}

impl Rules {
    /// Where a partition begins of which this is committed.
    ///
    /// # Errors
    /// If the rules say that a person decides.
    pub(super) fn begin(&self, committed: &Committed) -> Result<Decided<Begin>, SourceError> {
        let partition = committed.name.partition();
        let Some(at) = committed.at.and_then(Position::checked) else {
            return match self.start {
                Start::First => Ok(Decided::quietly(Begin::First)),
                Start::Last => Ok(Decided::quietly(Begin::Last)),
                Start::Refuse => Err(SourceError::new(format!(
                    "the group has committed nothing for {partition}"
                ))),
            };
        };
        let refuse = Policy { unreadable: Unreadable::Refuse, ..self.policy };
        let read_as = |stream: &[u8], policy| read(at, &committed.metadata, stream, policy);
        let by_id = identity(&committed.name, committed.id);
        let mut found = read_as(&by_id, refuse);
        if found == Err(MapError::OtherStream) && committed.id.is_some() {
            // Written when the broker had no ids yet.
            found = read_as(&identity(&committed.name, None), refuse);
        }
        match found {
            Err(MapError::OtherStream) => self.renewed(&partition.to_string(), Begin::First),
            Err(error) => match read_as(&by_id, self.policy) {
                Ok(found) => Ok(Decided::saying(
                    Begin::At(found.into_progress()),
                    format!("{partition} is repeated from {at} on: {error}"),
                )),
                Err(error) => Err(SourceError::because(
                    format!("what is committed for {partition} cannot be used"),
                    error,
                )),
            },
            Ok(Found::TakenOver(progress)) => {
                let notice =
                    format!("{partition} goes on where the parallel consumer was, at {at}");
                Ok(Decided::saying(Begin::At(progress), notice))
            }
            Ok(found) => Ok(Decided::quietly(Begin::At(found.into_progress()))),
        }
    }

    /// Where a partition goes on that is now within these bounds, if `next` is what should come next of the
    /// topic with the id `known`, and `stored` was the watermark that was last committed.
    ///
    /// # Errors
    /// If the rules say that a person decides.
    pub(super) fn go_on(
        &self,
        known: Option<TopicId>,
        next: Position,
        stored: Position,
        bounds: &Bounds,
    ) -> Result<Decided<GoOn>, SourceError> {
        let partition = bounds.name.partition();
        let place = |offset| Position::checked(offset).unwrap_or_default();
        let (first, end) = (place(bounds.first), place(bounds.end));
        let other = known.is_some() && bounds.id.is_some() && known != bounds.id;
        // Without ids a topic that was made again looks like one that was cut.
        let may_be_other = bounds.id.is_none() && next > end;
        if other || may_be_other {
            return self.renewed(&partition.to_string(), GoOn::Anew(Progress::up_to(first)));
        }
        if next > end {
            let notice = format!(
                "{partition} was cut to {end}, and {next} would have been next: a broker has lost records"
            );
            return Ok(Decided::saying(GoOn::Anew(Progress::up_to(stored.min(end))), notice));
        }
        if next < first {
            let notice = format!(
                "{partition} begins at {first} by now, and {next} would have been next: retention has \
                 removed records that were not read"
            );
            return Ok(Decided::saying(GoOn::Seek(first), notice));
        }
        Ok(Decided::quietly(GoOn::Seek(next)))
    }

    fn renewed<T>(&self, partition: &str, from_first: T) -> Result<Decided<T>, SourceError> {
        let what = format!("the topic of {partition} was deleted and made again");
        match self.renewed {
            Renewed::FromFirst => {
                Ok(Decided::saying(from_first, format!("{what}: it is read from its first record")))
            }
            Renewed::Refuse => Err(SourceError::new(what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Position = Position::new;

    fn rules() -> Rules {
        Rules { start: Start::First, policy: Policy::default(), renewed: Renewed::FromFirst }
    }

    fn name() -> Name {
        Name { topic: "orders".to_owned(), number: 3 }
    }

    fn committed(at: Option<i64>, metadata: &str, id: Option<u8>) -> Committed {
        Committed { name: name(), id: id.map(TopicId::of), at, metadata: metadata.to_owned() }
    }

    fn bounds(first: i64, end: i64, id: Option<u8>) -> Bounds {
        Bounds { name: name(), id: id.map(TopicId::of), first, end }
    }

    fn progress() -> Progress {
        Progress::with_map(AT(10), AT(20), vec![AT(15)])
    }

    fn text(id: Option<u8>) -> String {
        progress().encode(&identity(&name(), id.map(TopicId::of)))
    }

    #[test]
    fn a_group_without_commits_begins_where_the_user_says() {
        for (start, begin) in [(Start::First, Begin::First), (Start::Last, Begin::Last)] {
            let decided = Rules { start, ..rules() }.begin(&committed(None, "", Some(1))).unwrap();
            assert_eq!(decided, Decided::quietly(begin));
        }
        let refuse = Rules { start: Start::Refuse, ..rules() };
        refuse.begin(&committed(None, "", Some(1))).unwrap_err();
    }

    #[test]
    fn a_map_is_believed_of_its_own_topic_only() {
        let own = rules().begin(&committed(Some(10), &text(Some(1)), Some(1))).unwrap();
        assert_eq!(own, Decided::quietly(Begin::At(progress())));

        let other = committed(Some(10), &text(Some(1)), Some(2));
        assert_eq!(rules().begin(&other).unwrap().what, Begin::First);
        Rules { renewed: Renewed::Refuse, ..rules() }.begin(&other).unwrap_err();

        // To repeat what is unreadable is no reason to skip the beginning of another topic.
        let policy = Policy { unreadable: Unreadable::Repeat, ..Policy::default() };
        assert_eq!(Rules { policy, ..rules() }.begin(&other).unwrap().what, Begin::First);
    }

    #[test]
    fn a_map_from_before_the_broker_had_ids_is_believed() {
        let decided = rules().begin(&committed(Some(10), &text(None), Some(1))).unwrap();
        assert_eq!(decided, Decided::quietly(Begin::At(progress())));
    }

    #[test]
    fn foreign_metadata_is_refused_or_repeated_by_the_users_policy() {
        let foreign = committed(Some(10), "somebody else's words", Some(1));
        rules().begin(&foreign).unwrap_err();
        let policy = Policy { unreadable: Unreadable::Repeat, ..Policy::default() };
        let decided = Rules { policy, ..rules() }.begin(&foreign).unwrap();
        assert_eq!(decided.what, Begin::At(Progress::up_to(AT(10))));
        assert!(decided.notice.is_some());
    }

    #[test]
    fn a_place_that_exists_is_gone_back_to() {
        for next in [5, 9, 20] {
            let decided = rules().go_on(None, AT(next), AT(5), &bounds(5, 20, None)).unwrap();
            assert_eq!(decided, Decided::quietly(GoOn::Seek(AT(next))));
        }
    }

    #[test]
    fn what_retention_has_removed_is_a_gap() {
        let one = Some(TopicId::of(1));
        let decided = rules().go_on(one, AT(4), AT(2), &bounds(5, 20, Some(1))).unwrap();
        assert_eq!(decided.what, GoOn::Seek(AT(5)));
        assert!(decided.notice.is_some());
    }

    #[test]
    fn a_stream_that_was_cut_is_begun_anew_and_repeats_what_was_not_committed() {
        let one = Some(TopicId::of(1));
        for (stored, expected) in [(12, 12), (21, 20)] {
            let decided = rules().go_on(one, AT(25), AT(stored), &bounds(5, 20, Some(1))).unwrap();
            assert_eq!(decided.what, GoOn::Anew(Progress::up_to(AT(expected))));
        }
    }

    #[test]
    fn a_topic_that_was_made_again_is_read_from_its_first_record_wherever_it_ends() {
        let anew = GoOn::Anew(Progress::up_to(AT(0)));
        for end in [3, 100] {
            let one = Some(TopicId::of(1));
            let decided = rules().go_on(one, AT(25), AT(12), &bounds(0, end, Some(2))).unwrap();
            assert_eq!(decided.what, anew);
            let refuse = Rules { renewed: Renewed::Refuse, ..rules() };
            refuse.go_on(one, AT(25), AT(12), &bounds(0, end, Some(2))).unwrap_err();
        }
        // An old broker does not say that it was; what would be lost is worse than what is repeated.
        let decided = rules().go_on(None, AT(25), AT(12), &bounds(0, 3, None)).unwrap();
        assert_eq!(decided.what, anew);
    }
}
