//! A broker that speaks TLS alone, and wants a name and a password: `keylane` passes the settings on to its client,
//! and says what is wrong with them.
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{feed, subcommand};
use keylane_testkit::{Broker, Missing, or_skip};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A broker's key and certificate, and the certificate alone for clients that trust it. `keytool`, which comes
/// with Java, makes them anew, so that none is kept that runs out.
struct Papers {
    folder: TempDir,
}

impl Papers {
    /// None where there is no Java: then there is no broker either.
    fn new() -> Option<Self> {
        let papers = Papers { folder: tempfile::tempdir().unwrap() };
        let (keys, certificate) = (papers.keys(), papers.certificate());
        let make =
            ["-genkeypair", "-keyalg", "EC", "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1"];
        let export = ["-exportcert", "-rfc", "-file", text(&certificate)];
        for words in [&make[..], &export[..]] {
            let mut keytool = Command::new("keytool");
            let store = ["-alias", "broker", "-storepass", PASSWORD, "-keystore", text(&keys)];
            let output = keytool.args(words).args(store).output().ok()?;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        Some(papers)
    }

    fn keys(&self) -> PathBuf {
        self.folder.path().join("keys.p12")
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }
}

/// Of the file with the keys. It lies beside the file, so it is no secret.
const PASSWORD: &str = "changeit";

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// A broker whose one listener is TLS with a name and a password, for itself as well.
fn guarded_broker(papers: &Papers) -> Option<Broker> {
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule required";
    let users = "username=\"broker\" password=\"b\" user_broker=\"b\" user_orders=\"right\"";
    let keys = papers.keys();
    let settings = [
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", &format!("{module} {users};")),
        ("ssl.keystore.location", text(&keys)),
        ("ssl.keystore.password", PASSWORD),
        // It is a client of itself.
        ("ssl.truststore.location", text(&keys)),
        ("ssl.truststore.password", PASSWORD),
        ("auto.create.topics.enable", "true"),
    ];
    or_skip(Broker::start_with(&settings))
}

#[test]
fn records_go_and_come_by_tls_with_a_name_and_a_password_and_no_other_way() {
    let Some(papers) = or_skip(Papers::new().ok_or_else(|| Missing::new("there is no keytool")))
    else {
        return;
    };
    let Some(broker) = guarded_broker(&papers) else { return };
    let topic = format!("kafka://{}/orders", broker.address());
    let trust = format!("ssl.ca.location={}", text(&papers.certificate()));
    let settings = |password: &str| {
        [
            "security.protocol=SASL_SSL",
            "sasl.mechanisms=PLAIN",
            "sasl.username=orders",
            &format!("sasl.password={password}"),
        ]
        .map(|setting| ["-X".to_owned(), setting.to_owned()])
        .concat()
    };
    let trusting =
        |password: &str| [settings(password), vec!["-X".to_owned(), trust.clone()]].concat();
    let words = |words: &[&str], client: &[String]| {
        let words = words.iter().map(|word| (*word).to_owned());
        let after = words.clone().skip_while(|word| word != "--");
        let before = words.take_while(|word| word != "--");
        before.chain(client.iter().cloned()).chain(after).collect::<Vec<_>>()
    };

    let produce = words(&[&topic, "--key", "1"], &trusting("right"));
    let produced = feed(subcommand("produce", produce), b"a 1\nb 2\na 3\n");
    produced.expect(0, &["3 records are in kafka://"]);

    let consume = [&topic, "--group", "billing", "--key", "1", "--", "echo"];
    let mut child = subcommand("consume", words(&consume, &trusting("right")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines: Vec<String> = lines.take(3).map(Result::unwrap).collect();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    lines.sort_unstable();
    assert_eq!(lines, ["a 1", "a 3", "b 2"]);
    let lag = words(&[&topic, "--group", "billing", "--json"], &trusting("right"));
    let lag = feed(subcommand("lag", lag), b"");
    assert!(lag.expect(0, &[]).stdout.contains("\"committed\":3"), "{lag:?}");

    // What is wrong ends it, and is said.
    let refused = |client: &[String], why: &str| {
        let outcome = feed(subcommand("consume", words(&consume, client)), b"");
        outcome.expect(255, &["the brokers refuse this client", why]);
        assert!(!outcome.stderr.contains("sesame"), "a password was shown: {outcome:?}");
    };
    refused(&trusting("sesame"), "uthentication");
    refused(&settings("right"), "certificate");
}
