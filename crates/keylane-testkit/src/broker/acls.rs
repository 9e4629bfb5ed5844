//! Access rules of a broker, by requests of Kafka's protocol: the client has no call for them.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Request `CreateAcls` in version 1.
const CREATE_ACLS: [i16; 2] = [30, 1];
const TOPIC: u8 = 2;
const LITERAL: u8 = 3;
const READ: u8 = 3;
const ALLOW: u8 = 3;

/// Adds a rule that lets everyone read a topic. What a topic's rules do not allow is denied.
pub(super) fn allow_only_reads(address: &str, topic: &str) {
    let mut request = Vec::new();
    CREATE_ACLS.iter().for_each(|part| request.extend(part.to_be_bytes()));
    // Correlation of request and response, and the client's name.
    request.extend(1_i32.to_be_bytes());
    add_text(&mut request, "keylane-testkit");
    // One rule.
    request.extend(1_i32.to_be_bytes());
    request.push(TOPIC);
    add_text(&mut request, topic);
    request.push(LITERAL);
    add_text(&mut request, "User:*");
    add_text(&mut request, "*");
    request.extend([READ, ALLOW]);

    let mut broker = TcpStream::connect(address).expect("the broker accepts connections");
    let length = i32::try_from(request.len()).expect("a request is short");
    let sent = broker.write_all(&length.to_be_bytes()).and_then(|()| broker.write_all(&request));
    sent.expect("the broker reads requests");
    let mut length = [0; 4];
    broker.read_exact(&mut length).expect("the broker answers");
    let mut response = vec![0; u32::from_be_bytes(length) as usize];
    broker.read_exact(&mut response).expect("the broker answers");
    // Correlation, throttle time and number of results come first.
    assert_eq!(response.get(12..14), Some(&[0, 0][..]), "the rule was refused: {response:?}");
}

fn add_text(request: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("a text is short");
    request.extend(length.to_be_bytes());
    request.extend(text.as_bytes());
}
