//! An application that submits jobs in transactions of its own database, each with a row of its own, while the database is killed.

use std::process::Command;
use std::thread;

use keylane_testkit::PAUSE;

use super::clients::Clients;
use super::dice::Dice;

/// The key of its subtasks.
pub(crate) const KEY: &str = "sql";

/// Submits jobs of one subtask, each in a transaction after the other's commit. A transaction whose answer is lost has committed if its row is there;
/// one of four is rolled back.
pub(crate) fn submit_in_transactions(
    clients: &Clients,
    (psql, address): (Command, String),
    mut dice: Dice,
) {
    let query = |sql: &str| {
        let mut psql = Command::new(psql.get_program());
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql]).arg(&address);
        let output = psql.output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    let until_answered = |sql: &str| {
        loop {
            if let Some(answer) = query(sql) {
                return answer.trim_end().to_owned();
            }
            thread::sleep(PAUSE);
        }
    };
    until_answered("CREATE TABLE IF NOT EXISTS sent (number bigint PRIMARY KEY, name text)");
    // The function is there when the first server has started.
    until_answered("SELECT 'keylane.submit(text, json, text, json)'::regprocedure");
    let mut number = 1;
    while clients.wait_for_room() {
        let end = if dice.roll(4) == 0 { "ROLLBACK" } else { "COMMIT" };
        let _ = query(&format!(
            "BEGIN; INSERT INTO sent SELECT {number}, \
             keylane.submit('command', to_json('{KEY}:{number}'::text), key => '{KEY}'); {end}"
        ));
        let name = until_answered(&format!("SELECT name FROM sent WHERE number = {number}"));
        if !name.is_empty() {
            clients.accepted(name, false, &[vec![(KEY.to_owned(), number)]]);
            number += 1;
        }
    }
}
