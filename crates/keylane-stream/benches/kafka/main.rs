//! Throughput and latency of a Kafka consumer on a real broker, with the bound beside each figure.
//! Each run checks the order of each key.
//!
//! ```text
//! cargo bench -p keylane-stream --features kafka,tokio --bench kafka -- NAME
//! ```
//!
//! - `table`: of Confluent's parallel consumer: 1 partition, 10,000 records, each sleeps 0 to 5 ms,
//!   16 at a time. `hot`: the same with one key. `skew`: the same with keys by Zipf's law, and with
//!   one key that a fifth of all records have.
//! - `capture`: of KPipe: 8 partitions, 25,000 records, key = i mod 1,000, each waits for a fixed
//!   time. `--peer=NAME=COMMAND` runs another consumer beside it; `bench-compare/streams.sh` has two.
//! - `rate`: records per second with handlers that cost nothing, beside a bare loop of the client.
//! - `stuck`: latency of records while one key among 10,000 is stuck, and while none is, with
//!   handlers that are busy half of the time.
//!
//! `--quick` after the name runs less of everything, to check that it works.

mod capture;
mod peers;
mod rate;
mod stage;
mod stuck;
mod table;
mod watch;

use keylane_testkit::{Broker, or_skip};
use stage::Stage;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let quick = words.iter().any(|word| word == "--quick");
    let workloads: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    if workloads.is_empty() {
        return;
    }
    let Some(broker) = or_skip(Broker::start()) else { return };
    let stage = Stage::new(&broker, quick);
    for workload in workloads {
        println!("\n{workload}");
        match workload {
            "table" => table::many_keys(&stage),
            "hot" => table::one_key(&stage),
            "skew" => table::skewed_keys(&stage),
            "capture" => capture::run(&stage),
            "rate" => rate::run(&stage),
            "stuck" => stuck::run(&stage),
            other => panic!("there is no workload {other}"),
        }
    }
}
