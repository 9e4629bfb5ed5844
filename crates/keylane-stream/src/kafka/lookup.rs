use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::Offset;
use rdkafka::types::RDKafkaErrorCode;

use super::context::Context;
use super::names::{Name, list};
use super::native::{self, TopicId};

/// How long one request waits for its answer, before it is asked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What a broker is asked.
#[derive(Debug)]
pub(super) enum Question {
    /// What a group has committed for partitions, and which topics they are of.
    Committed(Vec<Name>),
    /// Where partitions begin and end, and which topics they are of.
    Bounds(Vec<Name>),
    /// Which ids topics have now.
    Ids(Vec<String>),
}

/// What it answers, or why it does not.
#[derive(Debug)]
pub(super) enum Answer {
    Committed(Vec<Name>, KafkaResult<Vec<Committed>>),
    Bounds(Vec<Name>, KafkaResult<Vec<Bounds>>),
    Ids(KafkaResult<HashMap<String, TopicId>>),
}

/// What a group has committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) name: Name,
    pub(super) id: Option<TopicId>,
    /// None if it has not committed anything.
    pub(super) at: Option<i64>,
    /// What stands beside it.
    pub(super) metadata: String,
    /// The leader epoch of the record before it.
    pub(super) epoch: Option<u32>,
}

/// Where a partition begins and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) name: Name,
    pub(super) id: Option<TopicId>,
    pub(super) first: i64,
    /// One past the last.
    pub(super) end: i64,
}

/// The thread that asks the broker what takes time to be answered, so that the one that polls need not
/// wait for it.
#[derive(Debug)]
pub(super) struct Lookup {
    /// Dropped, it ends the thread.
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    thread: JoinHandle<()>,
}

impl Lookup {
    pub(super) fn new(consumer: Arc<BaseConsumer<Context>>) -> Self {
        let (questions, asked) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("keylane-lookup".to_owned())
            .spawn(move || answer_all(&consumer, &asked, &sender))
            .expect("a thread can be started");
        Lookup { questions, answers, thread }
    }

    pub(super) fn ask(&self, question: Question) {
        // A thread that is gone has panicked, and `take` says so.
        let _ = self.questions.send(question);
    }

    /// An answer that has come. The context's bell is rung for each.
    ///
    /// # Panics
    /// If the thread has.
    pub(super) fn take(&self) -> Option<Answer> {
        match self.answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => panic!("the thread that asks the broker died"),
        }
    }

    /// Lets it end after the question that it is at, for which it is not waited unless it has ended.
    pub(super) fn end(self) {
        drop(self.questions);
        if self.thread.is_finished() {
            // A panic of its own is no concern of who leaves.
            let _ = self.thread.join();
        }
    }
}

fn answer_all(
    consumer: &BaseConsumer<Context>,
    asked: &Receiver<Question>,
    answers: &Sender<Answer>,
) {
    for question in asked {
        let answer = match question {
            Question::Committed(names) => {
                let answer = committed(consumer, &names);
                Answer::Committed(names, answer)
            }
            Question::Bounds(names) => {
                let answer = bounds(consumer, &names);
                Answer::Bounds(names, answer)
            }
            Question::Ids(topics) => Answer::Ids(ids(consumer, topics)),
        };
        if answers.send(answer).is_err() {
            return;
        }
        consumer.context().bell.ring();
    }
}

pub(super) fn committed(
    consumer: &BaseConsumer<Context>,
    names: &[Name],
) -> KafkaResult<Vec<Committed>> {
    let ids = ids_of(consumer, names)?;
    let found = consumer.committed_offsets(list(names), ANSWER_WITHIN)?;
    let beside = native::metadata(&found).into_iter().zip(native::leader_epochs(&found));
    let elements = found.elements().into_iter().zip(beside);
    elements
        .map(|(element, (metadata, epoch))| {
            element.error()?;
            let name = Name { topic: element.topic().to_owned(), number: element.partition() };
            let at = match element.offset() {
                Offset::Offset(at) => Some(at),
                _ => None,
            };
            Ok(Committed { id: ids.get(&name.topic).copied(), name, at, metadata, epoch })
        })
        .collect()
}

pub(super) fn bounds(consumer: &BaseConsumer<Context>, names: &[Name]) -> KafkaResult<Vec<Bounds>> {
    let ids = ids_of(consumer, names)?;
    let bounds = names.iter().map(|name| {
        let (first, end) = consumer.fetch_watermarks(&name.topic, name.number, ANSWER_WITHIN)?;
        Ok(Bounds { name: name.clone(), id: ids.get(&name.topic).copied(), first, end })
    });
    let bounds = bounds.collect::<KafkaResult<_>>()?;
    // Made again in between, a topic would have the id of one and the bounds of the other.
    if ids_of(consumer, names)? != ids {
        return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicId));
    }
    Ok(bounds)
}

fn ids_of(
    consumer: &BaseConsumer<Context>,
    names: &[Name],
) -> KafkaResult<HashMap<String, TopicId>> {
    let mut topics: Vec<String> = names.iter().map(|name| name.topic.clone()).collect();
    topics.sort();
    topics.dedup();
    ids(consumer, topics)
}

/// The ids of those topics that have one: neither those that are gone, nor any of a broker that is too
/// old for ids.
fn ids(
    consumer: &BaseConsumer<Context>,
    topics: Vec<String>,
) -> KafkaResult<HashMap<String, TopicId>> {
    if topics.is_empty() {
        return Ok(HashMap::new());
    }
    let broker = consumer.fetch_metadata(Some(&topics[0]), ANSWER_WITHIN)?.orig_broker_id();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    match native::describe(consumer.client(), broker, &names, ANSWER_WITHIN) {
        Ok(described) => Ok(described
            .into_iter()
            .filter_map(|described| Some((described.topic, described.id.ok()??)))
            .collect()),
        Err(RDKafkaErrorCode::UnsupportedFeature) => Ok(HashMap::new()),
        Err(code) => Err(KafkaError::MetadataFetch(code)),
    }
}
