//! `keylane run --joblog` writes the job log of GNU parallel.

use std::fs;

use crate::common::run;

fn columns(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn the_job_log_has_the_columns_of_gnu_parallel() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("joblog");
    let joblog = path.to_str().unwrap();
    let script = r#"echo "$1"; case $1 in *fail*) exit 3 ;; *kill*) kill -TERM $$ ;; esac"#;
    let words = ["-j1", "--key", "1", "--joblog", joblog, "--", "sh", "-c", script, "sh", "{}"];
    let input = "a it's\nb fail\nc kill\n";
    run(&words, input).expect(2, &[]);
    let text = fs::read_to_string(&path).unwrap();
    let lines = columns(&text);
    let header = "Seq Host Starttime JobRuntime Send Receive Exitval Signal Command";
    assert_eq!(lines[0].join(" "), header);
    assert_eq!(lines.len(), 4, "{text}");
    let column =
        |number: usize| lines[1..].iter().map(|line| line[number].clone()).collect::<Vec<_>>();
    assert_eq!(column(0), ["1", "2", "3"]);
    assert_eq!(column(1), [":", ":", ":"]);
    assert_eq!(column(4), ["0", "0", "0"]);
    assert_eq!(column(5), ["7", "7", "7"]);
    assert_eq!(column(6), ["0", "3", "0"]);
    assert_eq!(column(7), ["0", "0", "15"]);
    assert!(column(8)[0].ends_with(r#"sh 'a it'"'"'s'"#), "{text}");
    for line in &lines[1..] {
        let start: f64 = line[2].parse().unwrap();
        assert!(start > 1.7e9 && line[2].split('.').nth(1).unwrap().len() == 3, "{text}");
        assert!(line[3].len() >= 10 && line[3].trim().parse::<f64>().is_ok(), "{text}");
    }
    // A shell reads the words of the command again.
    let command = &column(8)[0];
    let mut shell = std::process::Command::new("sh");
    let again = shell.args(["-c", &format!("printf '%s|' {command}")]).output().unwrap();
    assert!(String::from_utf8(again.stdout).unwrap().ends_with("|sh|a it's|"));
    // A new run writes it anew, as GNU parallel does.
    run(&words, "z\n").expect(0, &[]);
    assert_eq!(columns(&fs::read_to_string(&path).unwrap()).len(), 2);
}

#[test]
fn a_record_has_one_line_for_its_last_attempt_and_a_later_run_appends() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (joblog, log, input) = (path("joblog"), path("log"), path("input"));
    fs::write(&input, "a\nb\n").unwrap();
    let script = r#"[ "$KEYLANE_ATTEMPT" = 2 ] && [ -e "$1/repaired" ]"#;
    let of = |last: &[&str]| {
        let own = ["-j1", "--key", "1", "--attempts", "2", "--backoff", "1ms"];
        let files = ["--joblog", &joblog, "--log", &log, &input];
        let command = ["--", "sh", "-c", script, "sh", folder.path().to_str().unwrap(), "{}"];
        let words: Vec<_> = own.iter().chain(&files).chain(last).chain(&command).copied().collect();
        run(&words, "")
    };
    of(&[]).expect(2, &[]);
    fs::write(path("repaired"), "").unwrap();
    of(&["--retry-failed"]).expect(0, &[]);
    let lines = columns(&fs::read_to_string(&joblog).unwrap());
    let seen: Vec<_> = lines[1..].iter().map(|line| (&*line[0], &*line[6])).collect();
    assert_eq!(seen, [("1", "1"), ("2", "1"), ("1", "0"), ("2", "0")]);
}

#[test]
fn a_job_log_that_cannot_be_written_ends_the_run() {
    let words = ["--key", "1", "--joblog", "/no/such/folder/log", "--", "true"];
    run(&words, "a\n").expect(255, &["cannot write the job log to /no/such/folder/log"]);
    let words = ["--key", "1", "--joblog", "/dev/full", "--", "true"];
    run(&words, "a\n").expect(255, &["cannot write the job log"]);
}
