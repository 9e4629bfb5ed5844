//! Rebalances: decides where assigned partitions start, and answers assignments and revocations.

use std::collections::HashMap;
use std::time::Instant;

use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::context::{self, ClientEvent};
use super::ffi::TopicId;
use super::metadata_thread::{
    CommittedOffset, MetadataReply, MetadataRequest, OffsetBounds, PartialBounds,
};
use super::partition::OwnedPartition;
use super::pending_assignment::{PendingAssignment, ResolvedStart};
use super::source::{KafkaSource, RETRY_INTERVAL};
use super::start_offset::{ReadState, StartAction, StartAt, StartDecision, epochs_of};
use super::topic_partition::TopicPartition;
use super::topic_partitions::TopicPartitions;
use crate::Position;
use crate::source::{Partition, SourceError, SourceEvent};
use crate::tracker::Progress;

impl KafkaSource {
    /// Processes the client's callbacks.
    pub(super) fn take_client_events(
        &mut self,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        while let Some(happened) = self.context().take_client_events() {
            match happened {
                ClientEvent::Assign(names) => self.assignment_requested(names)?,
                ClientEvent::Revoke { partitions, lost: false } => self.wanted(partitions, events),
                ClientEvent::Revoke { partitions, lost: true } => self.lost(partitions, events),
                ClientEvent::Committed(outcomes) => self.committed(outcomes, events),
            }
        }
        Ok(())
    }

    fn assignment_requested(&mut self, names: Vec<TopicPartition>) -> Result<(), SourceError> {
        let pending = PendingAssignment { names, unknown: HashMap::new(), known: HashMap::new() };
        self.pending_assignments.push_back(pending);
        if self.pending_assignments.len() == 1 { self.resolve_front() } else { Ok(()) }
    }

    /// Starts to resolve the first pending assignment. An empty one is accepted at once.
    fn resolve_front(&mut self) -> Result<(), SourceError> {
        while let Some(pending) = self.pending_assignments.front() {
            if !pending.names.is_empty() {
                self.ask(MetadataRequest::Committed(pending.names.clone()));
                return Ok(());
            }
            self.pending_assignments.pop_front();
            self.accept(&TopicPartitionList::new())?;
        }
        Ok(())
    }

    fn accept(&mut self, partitions: &TopicPartitionList) -> Result<(), SourceError> {
        self.has_joined = true;
        let cannot =
            |error| SourceError::because("cannot accept the assignment of the group", error);
        context::take(&self.consumer, partitions).map_err(cannot)
    }

    /// Processes replies of the metadata thread.
    pub(super) fn take_metadata(
        &mut self,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        while let Some(answer) = self.metadata.as_ref().and_then(|metadata| metadata.take()) {
            match answer {
                MetadataReply::Committed(names, Ok(found)) if self.is_restoring(&names) => {
                    self.restored(&found, events)?;
                }
                MetadataReply::Committed(names, Ok(found)) => {
                    self.on_committed_offsets(&names, &found, events)?
                }
                MetadataReply::Bounds(PartialBounds { found, failed }) => {
                    self.on_bounds(&found, events)?;
                    if let Some((names, error)) = failed {
                        self.on_request_failed(MetadataRequest::Bounds(names), &error)?;
                    }
                }
                MetadataReply::Ids(Ok(ids)) => self.on_topic_ids(&ids),
                MetadataReply::Partitions(_, Ok(all)) => {
                    self.topic_partitions = TopicPartitions::Known(all);
                }
                MetadataReply::Partitions(topics, Err(error)) => {
                    self.on_request_failed(MetadataRequest::Partitions(topics), &error)?;
                }
                MetadataReply::Committed(names, Err(error)) => {
                    self.on_request_failed(MetadataRequest::Committed(names), &error)?;
                }
                // Requested again at the next check anyway.
                MetadataReply::Ids(Err(_)) => {}
            }
        }
        Ok(())
    }

    fn on_request_failed(
        &mut self,
        request: MetadataRequest,
        error: &rdkafka::error::KafkaError,
    ) -> Result<(), SourceError> {
        let still_asked = match &request {
            MetadataRequest::Committed(names) => {
                self.pending_assignments.front().is_some_and(|pending| pending.names == *names)
                    || self.is_restoring(names)
            }
            MetadataRequest::Bounds(names) => names.iter().any(|name| self.awaits_bounds(name)),
            MetadataRequest::Ids(_) => false,
            MetadataRequest::Partitions(_) => true,
        };
        if still_asked {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
            self.report_error(code, &error.to_string())?;
            self.retries.push((Instant::now() + RETRY_INTERVAL, request));
        }
        Ok(())
    }

    fn awaits_bounds(&self, name: &TopicPartition) -> bool {
        let has_end = || self.ends.as_ref().is_none_or(|ends| ends.contains_key(name));
        let assignment_requested = |pending: &PendingAssignment| {
            pending.unknown.contains_key(name) || pending.names.contains(name) && !has_end()
        };
        self.pending_assignments.front().is_some_and(assignment_requested)
            || self.owned.get(name).is_some_and(|owned| owned.resolving.is_some())
    }

    fn on_committed_offsets(
        &mut self,
        names: &[TopicPartition],
        found: &[CommittedOffset],
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        // The assignment may have been revoked meanwhile.
        let Some(pending) =
            self.pending_assignments.front_mut().filter(|pending| pending.names == names)
        else {
            return Ok(());
        };
        for committed in found {
            let known = self.ids.get(&committed.name.topic).copied();
            let decision = self.start_policy.start_again_at(known, committed)?;
            let StartDecision { what, notice } = decision;
            if let Some(notice) = notice {
                self.consumer.context().add_notice(notice);
            }
            match what {
                StartAt::At(progress) => {
                    let (id, epochs) = (committed.id, epochs_of(committed));
                    pending
                        .known
                        .insert(committed.name.clone(), ResolvedStart { progress, id, epochs });
                }
                end => {
                    pending.unknown.insert(committed.name.clone(), end);
                }
            }
        }
        let ends = self.ends.as_ref();
        let is_open = |name: &TopicPartition| {
            pending.unknown.contains_key(name) || ends.is_some_and(|ends| !ends.contains_key(name))
        };
        let open: Vec<_> = pending.names.iter().filter(|name| is_open(name)).cloned().collect();
        if !open.is_empty() {
            self.ask(MetadataRequest::Bounds(open));
        }
        self.accept_if_resolved(events)
    }

    fn on_bounds(
        &mut self,
        found: &[OffsetBounds],
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        for bounds in found {
            if self.owned.contains_key(&bounds.name) {
                self.go_on(bounds, events)?;
                continue;
            }
            let Some(pending) = self.pending_assignments.front_mut() else { continue };
            if let Some(ends) = self.ends.as_mut().filter(|_| pending.names.contains(&bounds.name))
            {
                let end = Position::checked(bounds.end).unwrap_or_default();
                ends.entry(bounds.name.clone()).or_insert(end);
            }
            if let Some(begin) = pending.unknown.remove(&bounds.name) {
                let at = if begin == StartAt::Last { bounds.end } else { bounds.first };
                let progress = Progress::up_to(Position::checked(at).unwrap_or_default());
                let (id, epochs) = (bounds.id, (None, None));
                pending.known.insert(bounds.name.clone(), ResolvedStart { progress, id, epochs });
            }
        }
        self.accept_if_resolved(events)
    }

    /// Accepts the first pending assignment once all its start positions are resolved.
    fn accept_if_resolved(&mut self, events: &mut Vec<SourceEvent>) -> Result<(), SourceError> {
        let ends = self.ends.as_ref();
        let known = |pending: &mut PendingAssignment| {
            let has_end = |name| ends.is_none_or(|ends| ends.contains_key(name));
            pending.known.len() == pending.names.len() && pending.names.iter().all(has_end)
        };
        let Some(mut pending) = self.pending_assignments.pop_front_if(known) else { return Ok(()) };
        let mut list = TopicPartitionList::with_capacity(pending.names.len());
        let mut to_check = Vec::new();
        let names = pending.names;
        for name in names.iter().cloned() {
            let known = pending.known.remove(&name).expect("all of them are known");
            let ResolvedStart { progress, id, epochs } = known;
            let at = Offset::Offset(progress.watermark().signed());
            list.add_partition_offset(&name.topic, name.number, at)
                .expect("a position is a valid offset");
            let end = self.end_of(&name);
            let mut owned = OwnedPartition::new(&name, id, &progress, epochs).until(end);
            if let Some(id) = id {
                self.ids.insert(name.topic.clone(), id);
            }
            if owned.epochs.below(owned.next).is_some() {
                to_check.push(name.clone());
            }
            owned.report(progress, self.map_limit, events);
            self.owned.insert(name, owned);
        }
        self.has_worked = true;
        self.queues.split(&self.consumer.share(), &names)?;
        self.accept(&list)?;
        // A seek makes the broker check that the log is the one that was read; an assignment does
        // not.
        to_check.iter().for_each(|name| self.seek(name));
        self.resolve_front()
    }

    /// Continues an assigned partition according to the start policy.
    fn go_on(
        &mut self,
        bounds: &OffsetBounds,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let name = &bounds.name;
        let Some(owned) = self.owned.get_mut(name).filter(|owned| owned.resolving.is_some()) else {
            return Ok(());
        };
        let OwnedPartition { id, next, stored, ref begun, truncated_at, .. } = *owned;
        let decided = self
            .start_policy
            .continue_at(ReadState { id, next, stored, begun, truncated_at }, bounds);
        if self.revoked.iter().any(|names| names.contains(name)) {
            // Another member is about to have it, and will detect the same. If the progress here
            // still counts, it can be committed before.
            let still_counts = matches!(
                &decided,
                Ok(StartDecision { what: StartAction::Seek(_) | StartAction::Skip(_), .. })
            );
            if still_counts {
                owned.resolving = None;
            }
            return Ok(());
        }
        let StartDecision { what, notice } = match decided {
            Ok(decided) => decided,
            Err(error) => {
                self.refuse(name, bounds);
                return Err(error);
            }
        };
        if let Some(notice) = notice {
            self.consumer.context().add_notice(notice);
        }
        match what {
            StartAction::Seek(position) => owned.next = position,
            StartAction::Skip(to) => owned.skip_to(to, events),
            StartAction::Anew(progress, positions) => {
                if let Some(ends) = &mut self.ends {
                    let end = Position::checked(bounds.end).unwrap_or_default();
                    ends.insert(name.clone(), end);
                }
                self.reassign(name, bounds.id, progress, events);
                if positions > 0 {
                    events.push(SourceEvent::Missed { partition: name.partition(), positions });
                }
            }
        }
        self.seek(name);
        Ok(())
    }

    /// Handles a partition that needs an operator's decision. Its progress can still be committed
    /// if the log is the same one.
    fn refuse(&mut self, name: &TopicPartition, bounds: &OffsetBounds) {
        let is_same = |owned: &mut OwnedPartition| {
            let removed = Position::checked(bounds.first).is_some_and(|first| owned.next < first);
            removed && owned.truncated_at.is_none() && owned.id == bounds.id
        };
        if let Some(owned) = self.owned.get_mut(name)
            && is_same(owned)
        {
            owned.resolving = None;
        } else {
            self.owned.remove(name);
        }
    }

    /// Reports an assigned partition as lost and assigns it again.
    fn reassign(
        &mut self,
        name: &TopicPartition,
        id: Option<TopicId>,
        progress: Progress,
        events: &mut Vec<SourceEvent>,
    ) {
        let Some(owned) = self.owned.get_mut(name) else { return };
        // If the client was told to stop fetching, it must be told to resume.
        let was_stopped = owned.is_stopped;
        let end = self.ends.as_ref().and_then(|ends| ends.get(name).copied());
        *owned = OwnedPartition::new(name, id.or(owned.id), &progress, (None, None)).until(end);
        owned.is_stopped = was_stopped;
        if let Some(id) = owned.id {
            self.ids.insert(name.topic.clone(), id);
        }
        let partition = owned.partition.clone();
        events.push(SourceEvent::Lost(vec![partition.clone()]));
        owned.report(progress, self.map_limit, events);
        crate::source::Source::resume(self, &partition);
    }

    /// Checks the topics whose id has changed.
    fn on_topic_ids(&mut self, ids: &HashMap<String, TopicId>) {
        let mut changed = Vec::new();
        for (name, owned) in &mut self.owned {
            let now = ids.get(&name.topic).copied();
            if owned.id.is_some() && now.is_some() && owned.id != now && owned.resolve() {
                changed.push(name.clone());
            }
        }
        if !changed.is_empty() {
            self.ask(MetadataRequest::Bounds(changed));
        }
    }

    /// Handles a revocation by the group.
    fn wanted(&mut self, names: Vec<TopicPartition>, events: &mut Vec<SourceEvent>) {
        if self
            .pending_assignments
            .iter()
            .any(|pending| pending.names.iter().any(|name| names.contains(name)))
        {
            self.decline_assignments();
        }
        let ours: Vec<Partition> =
            names.iter().filter_map(|name| Some(self.owned.get(name)?.partition.clone())).collect();
        if ours.is_empty() {
            self.confirm_revoked(&names);
        } else {
            self.revoked.push_back(names);
            events.push(SourceEvent::Revoked(ours));
        }
    }

    /// Handles lost partitions, together with those that were about to be released.
    pub(super) fn lost(&mut self, names: Vec<TopicPartition>, events: &mut Vec<SourceEvent>) {
        self.decline_assignments();
        let mut gone = Vec::new();
        for names in self.revoked.drain(..).chain([names]).collect::<Vec<_>>() {
            let ours = names.iter().filter_map(|name| self.owned.remove(name));
            gone.extend(ours.map(|owned| owned.partition));
            self.confirm_revoked(&names);
        }
        if !gone.is_empty() {
            events.push(SourceEvent::Lost(gone));
        }
    }

    /// Releases partitions for the consumer.
    pub(super) fn give_up(&mut self, partitions: &[Partition]) {
        let released = |names: &Vec<TopicPartition>| {
            let ours = names.iter().filter(|name| self.owned.contains_key(*name));
            partitions.iter().all(|partition| names.contains(&TopicPartition::of(partition)))
                && ours.count() == partitions.len()
        };
        let Some(index) = self.revoked.iter().position(released) else { return };
        let names = self.revoked.remove(index).expect("the index was found above");
        names.iter().for_each(|name| drop(self.owned.remove(name)));
        self.confirm_revoked(&names);
    }

    /// Answers everything that the client waits for.
    pub(super) fn revoke_all(&mut self) {
        self.decline_assignments();
        for names in std::mem::take(&mut self.revoked) {
            self.confirm_revoked(&names);
        }
        self.owned.clear();
    }

    /// Answers pending assignments that are obsolete: the client waits for an answer to each,
    /// before it may revoke them.
    fn decline_assignments(&mut self) {
        for pending in std::mem::take(&mut self.pending_assignments) {
            let list = super::topic_partition::list(&pending.names);
            if let Err(error) = context::take(&self.consumer, &list) {
                self.notice(format!("cannot answer an assignment of the group: {error}"));
            }
        }
    }

    pub(super) fn confirm_revoked(&self, names: &[TopicPartition]) {
        if let Err(error) = context::give_up(&self.consumer, names) {
            self.notice(format!("cannot release partitions: {error}"));
        }
    }
}
