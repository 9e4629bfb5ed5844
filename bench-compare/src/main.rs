//! `bench`: the harness under the system's allocator.

fn main() -> std::process::ExitCode {
    bench_compare::run("system")
}
