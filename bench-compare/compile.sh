#!/usr/bin/env bash
# Measures what a call costs to compile: the processor time of a build whose program has CALLS calls with closures of their own,
# less that of one with a single call. Prints milliseconds per call, the median of RUNS (lowest to highest), in turns. PEERS names
# some of the peers.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
calls=${CALLS:-200} runs=${RUNS:-5}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$root/bench-compare/Cargo.lock" "$folder/"

declare -A pool call
pool[execute]='keylane::Pool::<u32>::builder().build().unwrap()'
call[execute]='pool.execute(7, move || { black_box(seed + N); }).unwrap()'
pool[submit]=${pool[execute]}
call[submit]='assert_eq!(pool.submit(7, move || seed + N).unwrap().join().unwrap(), 2 * N)'
pool[rayon-spawn]='rayon::ThreadPoolBuilder::new().build().unwrap()'
call[rayon-spawn]='pool.spawn(move || { black_box(seed + N); })'
pool[tokio-spawn]='tokio::runtime::Runtime::new().unwrap()'
call[tokio-spawn]='assert_eq!(pool.block_on(pool.spawn(async move { seed + N })).unwrap(), 2 * N)'
read -ra peers <<< "${PEERS:-execute submit rayon-spawn tokio-spawn}"
declare -A type=([execute]='keylane::Pool<u32>' [submit]='keylane::Pool<u32>'
  [rayon-spawn]='rayon::ThreadPool' [tokio-spawn]='tokio::runtime::Runtime')

mkdir -p "$folder/src/bin"
cat > "$folder/Cargo.toml" << END
[package]
name = "compile"
edition = "2024"
[dependencies]
keylane = { path = "$root/crates/keylane" }
rayon = "1"
tokio = { version = "1", features = ["rt-multi-thread"] }
[workspace]
END

# Writes the program of a peer with a number of calls.
write_program() {
  local peer=$1 count=$2 n
  {
    echo 'use std::hint::black_box;'
    echo "#[inline(never)] fn call<const N: usize>(pool: &${type[$peer]}) { let seed = black_box(N); ${call[$peer]}; }"
    echo "fn main() { let pool = ${pool[$peer]};"
    for ((n = 0; n < count; n++)); do echo "call::<$n>(&pool);"; done
    echo '}'
  } > "$folder/src/bin/$peer-$count.rs"
}

# Prints the milliseconds of processor time that the build of a program takes, with its dependencies built before.
build() {
  local profile=$1 program=$2
  touch "$folder/src/bin/$program.rs"
  local TIMEFORMAT='%U %S'
  { time CARGO_INCREMENTAL=0 cargo build -q --manifest-path "$folder/Cargo.toml" --target-dir "$folder/target" \
    --profile "$profile" --bin "$program" > /dev/null 2> "$folder/errors"; } 2>&1 |
    awk '{ printf "%d\n", ($1 + $2) * 1000 }'
}

for peer in "${peers[@]}"; do
  write_program "$peer" 1
  write_program "$peer" "$calls"
done
for profile in dev release; do
  cargo build -q --manifest-path "$folder/Cargo.toml" --target-dir "$folder/target" --profile "$profile" --bins
  # The first build after the dependencies takes longer.
  build "$profile" "${peers[0]}-1" > /dev/null
  for ((run = 0; run < runs; run++)); do
    for peer in "${peers[@]}"; do
      few=$(build "$profile" "$peer-1")
      many=$(build "$profile" "$peer-$calls")
      echo "$profile $peer $((many - few))"
    done
  done
done | awk -v calls="$calls" '{ print $1, $2, $3 / (calls - 1) }' | sort -k1,2 -k3,3n | awk '
  function flush() { if (n) printf "%-8s %-12s %5.1f (%.1f to %.1f)\n", profile, peer, v[int((n + 1) / 2)], v[1], v[n] }
  $1 != profile || $2 != peer { flush(); n = 0; profile = $1; peer = $2 }
  { v[++n] = $3 }
  END { flush() }'
