//! Targets of an operator's commands as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keylane_stream::Partition;
use keylane_stream::consumer::{PausedTarget, Target};
use serde::{Deserialize, Serialize};

/// Forms of a target.
const FORMS: &str = r#"write {"topic": "orders"}, {"partition": "orders[3]"}, {"key": "k7"}, or {"key_base64": "AAE="} for a key that is no text"#;

/// A target: one of its fields is set.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TargetFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
}

/// A paused target in a list.
#[derive(Debug, Serialize)]
pub(super) struct ListedTarget {
    #[serde(flatten)]
    target: TargetFields,
    /// Time since its pause, in seconds.
    paused_seconds: f64,
}

/// Reads the target in the body of a request.
///
/// # Errors
/// A text with the forms, if it has none or several.
pub(super) fn parse(body: &[u8]) -> Result<Target, String> {
    let fields: TargetFields = serde_json::from_slice(body)
        .map_err(|error| format!("the body is no target: {error}; {FORMS}"))?;
    match fields {
        TargetFields { topic: Some(topic), partition: None, key: None, key_base64: None } => {
            Ok(Target::Topic(topic))
        }
        TargetFields { topic: None, partition: Some(name), key: None, key_base64: None } => {
            let partition =
                partition(&name).ok_or_else(|| format!("`{name}` is no partition; {FORMS}"))?;
            Ok(Target::Partition(partition))
        }
        TargetFields { topic: None, partition: None, key: Some(key), key_base64: None } => {
            Ok(Target::Key(key.into_bytes()))
        }
        TargetFields { topic: None, partition: None, key: None, key_base64: Some(key) } => {
            let key = STANDARD.decode(&key);
            key.map(Target::Key).map_err(|error| format!("key_base64 is no base64: {error}"))
        }
        _ => Err(format!("the body has no target, or several; {FORMS}")),
    }
}

/// Parses `topic[number]`.
fn partition(name: &str) -> Option<Partition> {
    let (topic, number) = name.strip_suffix(']')?.rsplit_once('[')?;
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_number && !topic.is_empty())?;
    Some(Partition::new(topic, number))
}

/// Returns the form of a paused target in a list.
pub(super) fn listed(paused: &PausedTarget) -> ListedTarget {
    let none = TargetFields::default();
    let target = match &paused.target {
        Target::Topic(topic) => TargetFields { topic: Some(topic.clone()), ..none },
        Target::Partition(name) => TargetFields { partition: Some(name.to_string()), ..none },
        Target::Key(key) => match std::str::from_utf8(key) {
            Ok(key) => TargetFields { key: Some(key.to_owned()), ..none },
            Err(_) => TargetFields { key_base64: Some(STANDARD.encode(key)), ..none },
        },
        _ => none,
    };
    ListedTarget { target, paused_seconds: paused.age.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_exactly_one_target() {
        let of = |body: &str| parse(body.as_bytes());
        assert_eq!(of(r#"{"topic": "a[1]"}"#), Ok(Target::Topic("a[1]".to_owned())));
        let partition = Partition::new("a[b]", 12);
        assert_eq!(of(r#"{"partition": "a[b][12]"}"#), Ok(Target::Partition(partition)));
        assert_eq!(of(r#"{"key": ""}"#), Ok(Target::Key(Vec::new())));
        assert_eq!(of(r#"{"key_base64": "AP8="}"#), Ok(Target::Key(vec![0, 255])));
        let wrong = [
            "",
            "{}",
            "[]",
            r#""k7""#,
            r#"{"key": 7}"#,
            r#"{"keys": "k7"}"#,
            r#"{"key": "a", "topic": "t"}"#,
            r#"{"partition": "t"}"#,
            r#"{"partition": "t[]"}"#,
            r#"{"partition": "t[+1]"}"#,
            r#"{"partition": "[1]"}"#,
            r#"{"partition": "t[4294967296]"}"#,
            r#"{"key_base64": "!"}"#,
        ];
        for body in wrong {
            assert!(of(body).is_err(), "{body}");
        }
        assert!(of("{}").unwrap_err().contains(r#"{"key": "k7"}"#));
    }
}
