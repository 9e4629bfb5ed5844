//! W3C Trace Context of a job: validated on submission and passed to every attempt.
//!
//! Without a collector (`engine/traces/`) Keylane adds no spans and leaves the parent unchanged: spans of the handler are
//! children of the span that submitted the job, whenever the handler runs. An invalid context is ignored, because a
//! trace is no reason to refuse work.

use serde::{Deserialize, Serialize};

/// Trace context, as in the headers `traceparent` and `tracestate` of [W3C Trace Context].
///
/// [W3C Trace Context]: https://www.w3.org/TR/trace-context/
///
/// ```
/// use keylane_service::TraceContext;
///
/// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = TraceContext::parse(parent, "congo=t61, rojo=00f0").unwrap();
/// assert_eq!(context.traceparent(), parent);
/// assert_eq!(context.tracestate(), Some("congo=t61,rojo=00f0"));
/// assert!(TraceContext::parse("00-abc", "").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    tracestate: Option<String>,
}

/// Size of a version-00 `traceparent`: `00-`, 32 digits of trace id, `-`, 16 of span id, `-`, two
/// of flags.
const PARENT_BYTES: usize = 55;

/// Maximum size of a `tracestate` that is passed on: the minimum that the standard demands.
const MAX_STATE_BYTES: usize = 512;

/// Size above which a member of a too long `tracestate` is removed first.
const LONG_MEMBER_BYTES: usize = 128;

/// Maximum number of members of a `tracestate`.
const MAX_MEMBERS: usize = 32;

impl TraceContext {
    /// Parses the two headers; `tracestate` is empty where the header is absent. Returns none if
    /// `traceparent` is invalid. An invalid `tracestate` alone is dropped.
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: &str) -> Option<Self> {
        Some(TraceContext { traceparent: parent(traceparent)?, tracestate: state(tracestate) })
    }

    /// Trace id, parent span id and flags, in version 00.
    #[must_use]
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// State that tracing systems have added, each under its key.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }
}

/// Converts a `traceparent` to version 00. A later version has the same fields first, and may
/// append others.
fn parent(text: &str) -> Option<String> {
    let known = text.get(..PARENT_BYTES)?;
    let mut fields = known.split('-');
    let mut next = |length: usize| {
        fields.next().filter(|field| field.len() == length && field.bytes().all(is_digit))
    };
    let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
    let is_zero = |field: &str| field.bytes().all(|byte| byte == b'0');
    if version == "ff" || is_zero(trace) || is_zero(span) {
        return None;
    }
    match text.as_bytes().get(PARENT_BYTES) {
        None if version == "00" => Some(known.to_owned()),
        Some(_) if version == "00" => None,
        None | Some(b'-') => {
            // Version 00 defines only the sampled bit.
            let sampled = u8::from_str_radix(flags, 16).ok()? & 1;
            Some(format!("00-{trace}-{span}-{sampled:02x}"))
        }
        Some(_) => None,
    }
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Normalizes a `tracestate`: its members without the blanks between them.
fn state(text: &str) -> Option<String> {
    let members = text.split(',').map(|member| member.trim_matches([' ', '\t']));
    let mut members: Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    let mut keys = Vec::new();
    for member in &members {
        let (key, value) = member.split_once('=')?;
        if !is_key(key) || !is_value(value) || keys.contains(&key) {
            return None;
        }
        keys.push(key);
        if keys.len() > MAX_MEMBERS {
            return None;
        }
    }
    shorten(&mut members);
    Some(members.join(",")).filter(|state| !state.is_empty())
}

/// Checks the key of a member: the name of a system, or of a tenant in it.
fn is_key(key: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte);
    let is_name = |name: &str, most: usize, may_begin_with_a_digit: bool| {
        let first = name.bytes().next();
        let begins = first.is_some_and(|byte| {
            byte.is_ascii_lowercase() || may_begin_with_a_digit && byte.is_ascii_digit()
        });
        begins && name.len() <= most && name.bytes().all(is_plain)
    };
    match key.split_once('@') {
        None => is_name(key, 256, false),
        Some((tenant, system)) => is_name(tenant, 241, true) && is_name(system, 14, false),
    }
}

/// Checks the value of a member; blanks around it are already trimmed.
fn is_value(value: &str) -> bool {
    let is_fit = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(is_fit)
}

/// Removes whole members until the state is short enough: first the long ones, then the oldest,
/// which are last.
fn shorten(members: &mut Vec<&str>) {
    let length = |members: &[&str]| {
        let commas = members.len().saturating_sub(1);
        commas + members.iter().map(|member| member.len()).sum::<usize>()
    };
    while length(members) > MAX_STATE_BYTES {
        let long = members.iter().rposition(|member| member.len() > LONG_MEMBER_BYTES);
        members.remove(long.unwrap_or(members.len() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_parent_is_as_the_standard_has_it() {
        for fit in [format!("00-{TRACE}-{SPAN}-01"), format!("00-{TRACE}-{SPAN}-00")] {
            assert_eq!(parent(&fit).as_deref(), Some(&*fit));
        }
        let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
        for unfit in [
            String::new(),
            "00".into(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-011"),
            format!("00-{no_trace}-{SPAN}-01"),
            format!("00-{TRACE}-{no_span}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-011"),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{TRACE}{SPAN}--01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-0é"),
            format!("00-{TRACE}-{}é-01", &SPAN[..14]),
        ] {
            assert_eq!(parent(&unfit), None, "{unfit}");
        }
    }

    #[test]
    fn a_parent_of_a_later_version_is_read_as_far_as_it_is_known() {
        let known = |flags| Some(format!("00-{TRACE}-{SPAN}-{flags}"));
        assert_eq!(parent(&format!("cc-{TRACE}-{SPAN}-01")), known("01"));
        assert_eq!(parent(&format!("01-{TRACE}-{SPAN}-fe-what-is-new")), known("00"));
        assert_eq!(parent(&format!("01-{TRACE}-{SPAN}-03-")), known("01"));
        assert_eq!(parent(&format!("01-{TRACE}-{SPAN}-01.new")), None);
    }

    #[test]
    fn a_state_is_a_list_of_members() {
        let kept = |text: &str| state(text);
        assert_eq!(kept("a=1"), Some("a=1".into()));
        assert_eq!(
            kept(" a=1 ,\tb/c*d_e-f= x y ,, 1t@sys=!~"),
            Some("a=1,b/c*d_e-f= x y,1t@sys=!~".into())
        );
        for empty in ["", " ", ",", " ,\t"] {
            assert_eq!(kept(empty), None, "{empty:?}");
        }
        let long = "k".repeat(257);
        for unfit in [
            "a",
            "=1",
            "a=",
            "A=1",
            "1a=1",
            "a=1=2",
            "a=é",
            "a=1\n",
            "a b=1",
            "a=1,a=2",
            "a@=1",
            "@a=1",
            "t@1s=1",
            "t@s@u=1",
            &format!("{long}=1"),
            &format!("a={long}"),
            "t@fifteen-letters=1",
        ] {
            assert_eq!(kept(unfit), None, "{unfit:?}");
        }
        let members = |count: usize| {
            (0..count).map(|index| format!("k{index}=1")).collect::<Vec<_>>().join(",")
        };
        assert_eq!(kept(&members(32)), Some(members(32)));
        assert_eq!(kept(&members(33)), None);
    }

    #[test]
    fn of_a_long_state_whole_members_are_left_out() {
        let member = |key: &str, bytes: usize| format!("{key}={}", "v".repeat(bytes - 2));
        // A long member is removed before the last one, and the last before the first.
        let long = [
            member("a", 100),
            member("b", 129),
            member("c", 128),
            member("d", 128),
            member("e", 100),
        ];
        let expected = [&long[0], &long[2], &long[3], &long[4]].map(|member| &**member).join(",");
        assert_eq!(state(&long.join(",")), Some(expected));
        let equal = ["a", "b", "c", "d", "e"].map(|key| member(key, 128));
        assert_eq!(state(&equal.join(",")), Some(equal[..3].join(",")));
        let whole = [member("a", 255), member("b", 256)].join(",");
        assert_eq!((whole.len(), state(&whole)), (512, Some(whole.clone())));
    }
}
