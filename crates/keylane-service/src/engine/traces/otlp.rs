//! Spans in the JSON encoding of [OTLP](https://opentelemetry.io/docs/specs/otlp/): ids are hexadecimal, and 64-bit numbers are
//! texts.

use serde_json::{Value, json};

use super::span::{AttributeValue, Span};
use crate::wire::Timestamp;

/// Kind of a span within a service, and status of a failure, as OTLP numbers them.
const INTERNAL: u8 = 1;
const ERROR: u8 = 2;

/// Returns the body of a request with spans.
pub(super) fn request(service: &str, spans: &[Span]) -> Value {
    let text = |name: &str, value: &str| attribute(name, &AttributeValue::Text(value.to_owned()));
    let resource = json!({"attributes": [
        text("service.name", service),
        text("service.version", env!("CARGO_PKG_VERSION")),
    ]});
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({"name": "keylane", "version": env!("CARGO_PKG_VERSION")});
    json!({"resourceSpans": [{
        "resource": resource,
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]})
}

fn span(span: &Span) -> Value {
    let attributes = span.attributes.iter().map(|(name, value)| attribute(name, value));
    let mut it = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(span.begin),
        // A clock that was set back must not make a negative duration.
        "endTimeUnixNano": nanoseconds(span.end.max(span.begin)),
        "attributes": attributes.collect::<Vec<_>>(),
        "status": {},
    });
    if let Some(parent) = span.parent {
        it["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    if let Some(started) = span.started {
        it["events"] = json!([{"timeUnixNano": nanoseconds(started), "name": "started"}]);
    }
    if let Some(error) = &span.error {
        it["status"] = json!({"code": ERROR, "message": error});
    }
    it
}

fn attribute(name: &str, value: &AttributeValue) -> Value {
    let text = |text: &String| json!({"stringValue": text});
    let value = match value {
        AttributeValue::Text(value) => text(value),
        AttributeValue::Number(value) => json!({"intValue": value.to_string()}),
        AttributeValue::Texts(values) => {
            json!({"arrayValue": {"values": values.iter().map(text).collect::<Vec<_>>()}})
        }
    };
    json!({"key": name, "value": value})
}

fn nanoseconds(at: Timestamp) -> String {
    format!("{}000000", at.0)
}

#[cfg(test)]
mod tests {
    use super::super::span::tests::span as example;
    use super::*;

    #[test]
    fn a_span_is_encoded_as_the_specification_says() {
        let request = request("billing", &[example()]);
        let one = &request["resourceSpans"][0];
        let name = json!({"key": "service.name", "value": {"stringValue": "billing"}});
        assert_eq!(one["resource"]["attributes"][0], name);
        let expected = json!({
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": "0000000000000007",
            "parentSpanId": "0000000000000009",
            "name": "resize attempt",
            "kind": 1,
            "startTimeUnixNano": "1000000000",
            "endTimeUnixNano": "1250000000",
            "attributes": [
                {"key": "keylane.attempt", "value": {"intValue": "2"}},
                {"key": "keylane.keys", "value": {"arrayValue": {"values": [{"stringValue": "ann"}]}}},
            ],
            "status": {"code": 2, "message": "no space"},
        });
        assert_eq!(one["scopeSpans"][0]["spans"][0], expected);
    }
}
