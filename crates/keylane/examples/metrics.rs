//! Prints the metrics of a pool for Prometheus. Serve them at `/metrics` as `text/plain;
//! version=0.0.4`.

use std::time::Duration;

use keylane::Pool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::<u32>::builder().workers(2).build()?;
    for task in 0..200 {
        pool.execute(task % 10, || std::thread::sleep(Duration::from_micros(100)))?;
    }
    pool.shutdown()?;
    let mut page = String::new();
    pool.inspect().snapshot(0).write_prometheus(&mut page, &[("pool", "orders")])?;
    assert!(page.contains("keylane_tasks_ended_total{pool=\"orders\",outcome=\"done\"} 200\n"));
    print!("{page}");
    Ok(())
}
