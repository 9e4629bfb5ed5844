//! Settings that have an effect with some sources only: refused with another one where they are typed, and passed over in a
//! configuration file for several sources.

use super::invalid_settings::{InvalidSettings, wrong};
use super::settings::{
    ConsumeSettings, ForeignProgressPolicy, KafkaProtocol, KafkaStart, OffsetMap,
};

/// Kinds of the places between which records move.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceKinds {
    pub(super) source_is_topic: bool,
    /// Whether the source, the output or the dead letters are a topic.
    pub(super) any_is_topic: bool,
    /// Whether the progress of the source is in a file of its own.
    pub(super) source_has_state: bool,
}

/// Refuses settings without an effect: those of the Kafka client if no place is a topic, and those of another source.
pub(super) fn refuse_useless(
    settings: &ConsumeSettings,
    places: PlaceKinds,
) -> Result<(), InvalidSettings> {
    // The client of the command line and that of the file are one by now.
    let has_client = settings.client.as_ref().is_some_and(|client| !client.is_empty());
    if has_client && !places.any_is_topic {
        let name = if settings.client_config.is_some() { "client-config" } else { "client" };
        let what = format!(
            "--{name} is for topics, and none is named; write a place as kafka://HOST:PORT/TOPIC, or leave it out"
        );
        return wrong(name, what);
    }
    if let Some(name) = setting_of_a_topic(settings).filter(|_| !places.source_is_topic) {
        let what = format!("--{name} is for a source kafka://HOST:PORT/TOPIC; leave it out");
        return wrong(name, what);
    }
    if settings.state.is_some() && !places.source_has_state {
        let what = "--state is for a source file:PATH or letters:PATH; leave it out";
        return wrong("state", what);
    }
    Ok(())
}

/// Removes the settings that have no effect with this source from those of a file. The file may be for several sources,
/// of which the command line names one.
pub(super) fn keep_for_source(settings: &mut ConsumeSettings, source: &str) {
    if !source.starts_with("kafka://") {
        settings.group_instance_id = None;
        settings.protocol = None;
        settings.start = None;
        settings.out_of_range = None;
        settings.foreign_progress = None;
        settings.offset_map = None;
    }
    if !source.starts_with("file:") && !source.starts_with("letters:") {
        settings.state = None;
    }
}

/// Returns a setting that has an effect with a topic as the source only. Defaults do not count: the example of a
/// configuration file has them for every source.
pub(super) fn setting_of_a_topic(settings: &ConsumeSettings) -> Option<&'static str> {
    fn differs<T: PartialEq>(value: Option<T>, default: T) -> bool {
        value.is_some_and(|value| value != default)
    }
    let given = [
        ("group-instance-id", settings.group_instance_id.is_some()),
        ("protocol", differs(settings.protocol, KafkaProtocol::Cooperative)),
        ("start", differs(settings.start, KafkaStart::First)),
        ("out-of-range", differs(settings.out_of_range, KafkaStart::Refuse)),
        ("foreign-progress", differs(settings.foreign_progress, ForeignProgressPolicy::Refuse)),
        ("offset-map", differs(settings.offset_map, OffsetMap::Kl2)),
    ];
    given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
}
