//! Close codes for violations of the WebSocket protocol (RFC 6455, section 7.4.1).

/// Prefixes of the library's messages, with the close code and the reason for the client.
const CODES: [(&str, u16, &str); 3] = [
    ("Space limit exceeded", 1009, "the message is too large"),
    ("UTF-8 encoding error", 1007, "a text is UTF-8"),
    ("WebSocket protocol error", 1002, "this is against the WebSocket protocol"),
];

/// Returns the close code and its reason; `None` for a broken connection.
pub(super) fn close_code(error: &axum::Error) -> Option<(u16, &'static str)> {
    let text = error.to_string();
    let found = CODES.iter().find(|(begin, ..)| text.starts_with(begin));
    found.map(|(_, code, reason)| (*code, *reason))
}
