//! `keylane serve` starts the commands of a kind with limits within these, and says which cannot be run.

use crate::common::served::{Place, Served};

#[test]
fn commands_of_a_kind_with_limits_have_them_and_others_have_not() {
    let place = Place::new(
        "[kinds.few]\ncommand = [\"sh\", \"-c\", \"echo $0 $(ulimit -n; ulimit -t)\", \"{}\"]\n\
         limits = { files = 77, cpu = \"60s\" }\nattempts = 1\n\
         [kinds.gone]\ncommand = [\"no-such-program\"]\nlimits = { files = 77 }\n\
         [kinds.gone-too]\ncommand = [\"no-such-program\"]\n\
         [kinds.plain]\ncommand = [\"sh\", \"-c\", \"ulimit -n\"]\nattempts = 1\n",
    );
    let server = Served::start(&place, &[]);
    let of = |kind: &str, code| {
        let id = server.submit(&[kind, "--payload", "5"]);
        server.run(&["watch", &id]).expect(code, &[]);
        server.run(&["results", &id]).stdout
    };
    assert!(of("few", 0).contains("\"5 77 60\""), "{}", of("few", 0));
    let plain = of("plain", 0);
    assert!(!plain.contains("\"result\":77"), "{plain}");
    // At its first attempt.
    let gone = of("gone", 1);
    let said = "the command `no-such-program` was not run: No such file";
    assert!(gone.contains(said) && gone.contains("\"attempt\":1"), "{gone}");
    let gone = of("gone-too", 1);
    assert!(gone.contains(said) && gone.contains("\"attempt\":1"), "{gone}");
}
