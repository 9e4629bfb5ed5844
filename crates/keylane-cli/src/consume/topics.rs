//! Topics of a source address: splits it, and refuses output and dead letters that the source would
//! read again.

use regex::Regex;

use super::invalid_settings::{InvalidSettings, wrong};
use super::settings::ConsumeSettings;

/// Splits `kafka://BROKERS/TOPICS` into brokers and topics.
pub(super) fn brokers_and_topics(address: &str) -> Option<(&str, &str)> {
    address.strip_prefix("kafka://")?.split_once('/')
}

/// Returns whether a source with these topics reads `topic`. A pattern is a regular expression that
/// begins with `^`, and has the rest of the text.
pub(super) fn reads(topics: &str, topic: &str) -> bool {
    let (names, pattern) = match topics.strip_prefix('^') {
        Some(_) => ("", Some(topics)),
        None => match topics.find(",^") {
            Some(at) => (&topics[..at], Some(&topics[at + 1..])),
            None => (topics, None),
        },
    };
    names.split(',').any(|name| name == topic) || pattern.is_some_and(|it| matches(it, topic))
}

/// Returns whether a pattern matches a topic. The client is the judge of a pattern that is not valid
/// here.
pub(super) fn matches(pattern: &str, topic: &str) -> bool {
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(topic))
}

/// Refuses output and dead letters to a topic that the source reads: that would have no end.
pub(super) fn refuse_loops(settings: &ConsumeSettings) -> Result<(), InvalidSettings> {
    let source = settings.source.as_deref().and_then(brokers_and_topics);
    let Some((brokers, topics)) = source else { return Ok(()) };
    for (name, place, what) in [
        ("output", &settings.output, "output"),
        ("dead-letters", &settings.dead_letters, "dead letters"),
    ] {
        let Some(place) = place else { continue };
        if let Some((same, topic)) = brokers_and_topics(place)
            && same == brokers
            && reads(topics, topic)
        {
            let what = format!(
                "{place} is read by the source; its own {what} would be consumed; name another topic, or \
                 leave it out of the source's topics"
            );
            return wrong(name, what);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_dead_letters_go_to_no_topic_of_the_source() {
        let check = |source: &str, place: &str| {
            let of = |output: Option<&str>, dead_letters: Option<&str>| {
                refuse_loops(&ConsumeSettings {
                    source: Some(source.to_owned()),
                    output: output.map(str::to_owned),
                    dead_letters: dead_letters.map(str::to_owned),
                    ..ConsumeSettings::default()
                })
                .is_ok()
            };
            let both = (of(Some(place), None), of(None, Some(place)));
            assert_eq!(both.0, both.1);
            both.0
        };
        for source in ["t", "a,t", "^t", "a,^(t|u){1,2}", "a,^x{1,2}|t$"] {
            assert!(!check(&format!("kafka://h:1/{source}"), "kafka://h:1/t"), "{source}");
        }
        for source in ["a", "a,tt", "^a,t", "a,^tt"] {
            assert!(check(&format!("kafka://h:1/{source}"), "kafka://h:1/t"), "{source}");
        }
        assert!(check("kafka://h:1/t", "kafka://other:1/t"));
        assert!(check("kafka://h:1/t", "journal:t"));
        assert!(check("journal:t", "kafka://h:1/t"));
    }
}
