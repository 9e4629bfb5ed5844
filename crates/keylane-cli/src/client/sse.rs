//! Parser of server-sent events, as in the HTML standard: lines of `name: value`, and an empty line
//! after each event. Bytes may arrive in any pieces; each is examined once.

/// Maximum size of an event, in bytes. A longer one is an error of the server, and would exhaust
/// memory.
const MAX_BYTES: usize = 16 << 20;

/// An event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Type of the event; empty if absent.
    pub(super) name: String,
    pub(super) data: String,
    /// Where the stream goes on after this: for `Last-Event-ID`. That of an earlier event if this has none.
    pub(super) id: String,
}

/// A stream, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct SseParser {
    /// Start of an incomplete line.
    rest: Vec<u8>,
    /// The last byte was a CR: a LF after it belongs to it.
    after_cr: bool,
    begun: bool,
    event: SseEvent,
    has_data: bool,
    /// Pause before a new connection in milliseconds, if the server sent one.
    retry_ms: Option<u64>,
}

/// Error of a stream that is invalid or has a too long event.
#[derive(Debug, thiserror::Error)]
#[error("the stream of events is not valid")]
pub(super) struct InvalidStream;

impl SseParser {
    /// A stream that goes on after the event of this id.
    pub(super) fn after(id: &str) -> Self {
        SseParser {
            event: SseEvent { id: id.to_owned(), ..SseEvent::default() },
            ..SseParser::default()
        }
    }

    /// Where the stream goes on.
    pub(super) fn id(&self) -> &str {
        &self.event.id
    }

    pub(super) fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Parses more bytes and returns the completed events.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, InvalidStream> {
        let mut events = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if std::mem::take(&mut self.after_cr) => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    let line = std::mem::take(&mut self.rest);
                    events.extend(self.line(&line));
                    self.rest = line;
                    self.rest.clear();
                }
                byte => {
                    self.after_cr = false;
                    self.rest.push(byte);
                }
            }
        }
        let is_long = self.rest.len() + self.event.data.len() > MAX_BYTES;
        if is_long { Err(InvalidStream) } else { Ok(events) }
    }

    fn line(&mut self, line: &[u8]) -> Option<SseEvent> {
        let line =
            if self.begun { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            return self.end();
        }
        let line = String::from_utf8_lossy(line);
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.event.id),
            "retry" => self.retry_ms = value.parse().ok().or(self.retry_ms),
            // A comment has no name; other names are for others.
            _ => {}
        }
        None
    }

    /// An event without data is none, but its id counts.
    fn end(&mut self) -> Option<SseEvent> {
        let next = SseEvent { id: self.event.id.clone(), ..SseEvent::default() };
        let event = std::mem::replace(&mut self.event, next);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str, id: &str) -> SseEvent {
        SseEvent { name: name.into(), data: data.into(), id: id.into() }
    }

    const STREAM: &str = "\u{feff}retry: 250\r\n: ping\r\n\r\nid: 7-1\nevent: job_changed\ndata: {\"a\":\ndata:1}\n\n\
                          data\r\revent: lost\n\nid: 7-2\n\nother: x\ndata: grün\n\ndata: not ended\n";

    fn expected() -> [SseEvent; 3] {
        [event("job_changed", "{\"a\":\n1}", "7-1"), event("", "", "7-1"), event("", "grün", "7-2")]
    }

    #[test]
    fn events_are_what_the_standard_says() {
        let mut parser = SseParser::default();
        assert_eq!(parser.feed(STREAM.as_bytes()).unwrap(), expected());
        assert_eq!((parser.id(), parser.retry_ms()), ("7-2", Some(250)));
    }

    #[test]
    fn pieces_do_not_matter() {
        for size in 1..12 {
            let mut parser = SseParser::default();
            let pieces = STREAM.as_bytes().chunks(size);
            let events: Vec<_> = pieces.flat_map(|piece| parser.feed(piece).unwrap()).collect();
            assert_eq!(events, expected(), "{size}");
        }
    }

    #[test]
    fn a_stream_that_goes_on_knows_where() {
        let mut parser = SseParser::after("7-2");
        assert_eq!(parser.feed(b"data: x\n\n").unwrap(), [event("", "x", "7-2")]);
    }

    #[test]
    fn an_event_without_end_does_not_fill_the_memory() {
        let mut parser = SseParser::default();
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        let fed = (0..40).find(|_| parser.feed(line.as_bytes()).is_err());
        assert!(fed.is_some_and(|round| round < 20));
        let mut parser = SseParser::default();
        assert!((0..40).any(|_| parser.feed(&[b'x'; 1 << 20]).is_err()));
    }
}
