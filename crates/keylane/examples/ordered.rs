//! Tasks of one key run one after the other, in the order in which they were submitted; tasks of
//! different keys run in parallel.
//!
//! Three accounts get deposits and withdrawals. No account ever falls below zero, because no task
//! runs before the earlier ones of its account. The lock is there for the compiler: no task ever
//! waits for it.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use keylane::Pool;

fn main() -> Result<(), Box<dyn Error>> {
    let accounts = ["alice", "bob", "carol"];
    let balances: Arc<HashMap<&str, Mutex<i64>>> =
        Arc::new(accounts.map(|account| (account, Mutex::new(0))).into());

    let pool = Pool::<&str>::builder().workers(4).build()?;
    for amount in [100, -30, -70, 50, -50, 7] {
        for account in accounts {
            let balances = balances.clone();
            pool.execute(account, move || {
                let mut balance = balances[account].lock().unwrap();
                *balance += amount;
                assert!(*balance >= 0, "a later withdrawal has overtaken an earlier deposit");
            })?;
        }
    }
    pool.shutdown()?;

    for account in accounts {
        let balance = *balances[account].lock().unwrap();
        assert_eq!(balance, 7);
        println!("{account} has {balance}");
    }
    Ok(())
}
