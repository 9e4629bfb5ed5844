//! A server that speaks the API with answers that a test decides on, and keeps what it was asked.
#![allow(dead_code, reason = "every test file uses a part of this")]

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::common::subcommand;

/// What came in.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// Names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// Whether the body came to its end.
    pub(crate) is_whole: bool,
}

impl Request {
    /// `GET /v1/jobs`, to be matched.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = str::from_utf8(&self.body).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// What goes out.
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The body has no length: it ends with the connection, after this.
    then: Option<Box<Writing>>,
}

type Writing = dyn FnOnce(&mut TcpStream) -> io::Result<()> + Send;

impl Answer {
    pub(crate) fn new(status: u16, body: &Value) -> Self {
        let body = body.to_string().into_bytes();
        Answer { status, headers: Vec::new(), body, then: None }
            .with("content-type", "application/json")
    }

    pub(crate) fn ok(body: &Value) -> Self {
        Answer::new(200, body)
    }

    pub(crate) fn problem(status: u16, code: &str, detail: &str) -> Self {
        let body = json!({"type": format!("/problems/{code}"), "title": "no", "status": status,
                          "detail": detail, "instance": "1-1", "code": code});
        Answer::new(status, &body).with("content-type", "application/problem+json")
    }

    /// Events, and then the connection ends.
    pub(crate) fn events(text: String) -> Self {
        Answer::stream(move |stream| stream.write_all(text.as_bytes()))
    }

    /// A stream of events that this writes.
    pub(crate) fn stream(
        write: impl FnOnce(&mut TcpStream) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let empty = Answer {
            status: 200,
            headers: Vec::new(),
            body: Vec::new(),
            then: Some(Box::new(write)),
        };
        empty.with("content-type", "text/event-stream")
    }

    /// As of 204, which has none.
    pub(crate) fn without_body(mut self) -> Self {
        self.body.clear();
        self
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    fn write(self, stream: &mut TcpStream) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} Mock\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match self.then {
            Some(then) => {
                stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes())?;
                then(stream)?;
                // Never for another request.
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            None => {
                let length = self.body.len();
                stream.write_all(format!("{head}content-length: {length}\r\n\r\n").as_bytes())?;
                stream.write_all(&self.body)
            }
        }
    }
}

/// A server under test conditions. It lives as long as the test's process.
pub(crate) struct Mock {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Request>>>,
}

type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

impl Mock {
    pub(crate) fn start(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (handler, log): (Arc<Handler>, _) = (Arc::new(handler), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                thread::spawn(move || drop(serve(stream, &*handler, &log)));
            }
        });
        Mock { url, asked }
    }

    /// All that was asked so far.
    pub(crate) fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }

    /// The same, in a word each.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().iter().map(Request::line).collect()
    }

    /// `keylane` with these words, asking this server.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = subcommand(words[0], &words[1..]);
        command.env("KEYLANE_SERVER", &self.url).env_remove("KEYLANE_TOKEN");
        command
    }
}

fn serve(stream: TcpStream, handler: &Handler, log: &Mutex<Vec<Request>>) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let request = read(&mut reader)?;
        log.lock().unwrap().push(request.clone());
        if !request.is_whole {
            return Ok(());
        }
        handler(&request).write(&mut writer)?;
    }
}

fn read(reader: &mut impl BufRead) -> io::Result<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = Vec::new();
    let is_whole = match headers.get("content-length") {
        Some(length) => {
            let length = length.parse().unwrap();
            reader.by_ref().take(length).read_to_end(&mut body)? as u64 == length
        }
        None if headers.contains_key("transfer-encoding") => chunks(reader, &mut body).is_ok(),
        None => true,
    };
    Ok(Request { method, path, headers, body, is_whole })
}

/// A chunked body, up to its end.
fn chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim_end(), 16);
        let size = size.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let came = reader.by_ref().take(size).read_to_end(body)? as u64;
        let mut end = String::new();
        reader.read_line(&mut end)?;
        if came < size || end != "\r\n" {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if size == 0 {
            return Ok(());
        }
    }
}

/// The id of the only job.
pub(crate) const ID: &str = "job_0199aaaaaaaa7000800000000000000a";

/// A job of 10 subtasks in this state, `done` of which have ended.
pub(crate) fn job(state: &str, done: u64, version: u64) -> Value {
    json!({
        "id": ID, "kind": "resize", "name": "nightly", "labels": {}, "state": state, "weight": 1,
        "counts": {"total": 10, "waiting": 10 - done, "ready": 0, "running": 0, "backing_off": 0,
                   "succeeded": done, "failed": 0, "cancelled": 0},
        "progress": done as f64 / 10.0, "created_at": "2026-01-31T12:00:00.000Z", "version": version,
        "unknown_to_us": 12345678901234567890_u64,
    })
}

/// An event of a stream, as text.
pub(crate) fn event(id: &str, name: &str, job: &Value) -> String {
    let data = json!({"id": id, "event": name, "at": "2026-01-31T12:00:00.000Z", "job": job});
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}
