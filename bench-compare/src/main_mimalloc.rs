//! `bench-mimalloc`: the same harness under mimalloc. Tables run it for peers named `...+mimalloc`.

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    bench_compare::run("mimalloc")
}
