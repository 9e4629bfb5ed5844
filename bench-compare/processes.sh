#!/usr/bin/env bash
# Compares `keylane run` with `xargs -P` and GNU parallel: a process per record, and a long-lived
# child per slot. Prints markdown.
#
#   KEYLANE=path/to/keylane ./processes.sh
#
# Settings, all by environment:
#   KEYLANE    the program (required)
#   RUNS       rounds, each of which runs every tool once       (5)
#   JOBS       processes at a time                              (2)
#   PROCESSES  records of the process mode                      (3000)
#   ROWS       generated rows of the worker mode                (2000000)
#   ROWS_FILE  a CSV file with a header to use instead of generated rows
#   ROWS_KEY   its key column                                   (key)
#   ROWS_OTHER_KEY  the column of its second key                (other)
set -euo pipefail
export LC_ALL=C

KEYLANE=${KEYLANE:?set KEYLANE to the keylane program}
RUNS=${RUNS:-5}
JOBS=${JOBS:-2}
PROCESSES=${PROCESSES:-3000}
ROWS=${ROWS:-2000000}
ROWS_KEY=${ROWS_KEY:-key}
ROWS_OTHER_KEY=${ROWS_OTHER_KEY:-other}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$scratch/stderr" # of the last run of keylane, shown when something fails

# Rows as `key,other,number,text`, over a thousand keys in each of two columns, the same each time.
generate() {
  awk -v rows="$1" 'BEGIN {
    srand(42); print "key,other,number,text"
    for (i = 0; i < rows; i++) printf "k%d,o%d,%d,a few words of text\n", rand() * 1000, rand() * 1000, i
  }'
}

generate "$PROCESSES" >"$scratch/records.csv"
tail -n +2 "$scratch/records.csv" >"$scratch/records"
if [[ -n ${ROWS_FILE:-} ]]; then
  rows_file=$ROWS_FILE
  ROWS=$(($(wc -l <"$rows_file") - 1))
else
  rows_file=$scratch/rows.csv
  generate "$ROWS" >"$rows_file"
fi

# --- a process per record; the command is the arguments
process_keylane() {
  "$KEYLANE" run -j "$JOBS" --csv --header --key key "$scratch/records.csv" -- "$@" {} 2>"$scratch/stderr"
}
process_keylane_with_joblog() {
  "$KEYLANE" run -j "$JOBS" --csv --header --key key --joblog "$scratch/joblog.tsv" "$scratch/records.csv" \
    -- "$@" {} 2>"$scratch/stderr"
}
# The log from which a run continues.
process_keylane_with_log() {
  rm -f "$scratch/log.ndjson"
  "$KEYLANE" run -j "$JOBS" --csv --header --key key --log "$scratch/log.ndjson" "$scratch/records.csv" \
    -- "$@" {} 2>"$scratch/stderr"
}
process_keylane_with_keep_order() {
  "$KEYLANE" run -j "$JOBS" --csv --header --key key --keep-order "$scratch/records.csv" \
    -- "$@" {} 2>"$scratch/stderr"
}
process_xargs() { xargs -d '\n' -P "$JOBS" -n 1 "$@" <"$scratch/records"; }
process_parallel() { parallel --will-cite -j "$JOBS" "$@" {} <"$scratch/records"; }

# --- a child per slot, a row in, a row out
worker_keylane() {
  "$KEYLANE" run -j "$JOBS" --csv --header --key "$ROWS_KEY" --worker "$rows_file" -- cat 2>"$scratch/stderr"
}
# A row goes to any child that is free: with one key, and with two.
worker_keylane_any_child() {
  "$KEYLANE" run -j "$JOBS" --csv --header --key "$ROWS_KEY" --worker-keys any --worker "$rows_file" \
    -- cat 2>"$scratch/stderr"
}
worker_keylane_two_keys() {
  "$KEYLANE" run -j "$JOBS" --csv --header --key "$ROWS_KEY" --key "$ROWS_OTHER_KEY" --worker-keys any \
    --worker "$rows_file" -- cat 2>"$scratch/stderr"
}
worker_keylane_keep_order() {
  "$KEYLANE" run -j "$JOBS" --csv --header --key "$ROWS_KEY" --keep-order --worker "$rows_file" \
    -- cat 2>"$scratch/stderr"
}
# Blocks of rows to whichever child is free: no order of any kind.
worker_parallel_pipe() { tail -n +2 "$rows_file" | parallel --will-cite -j "$JOBS" --pipe cat; }

fail() {
  echo "processes.sh: $*" >&2
  tail -n 3 "$scratch/stderr" >&2
  exit 1
}

# The wall time of a command, in seconds, its output thrown away.
seconds() {
  local start=$EPOCHREALTIME
  "$@" >/dev/null || fail "$* failed"
  awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'
}

# Each record must come out once, whatever is measured afterwards.
check() {
  local expected=$1 lines
  shift
  lines=$("$@" | wc -l) || fail "$* failed"
  [[ $lines == "$expected" ]] || fail "$*: $lines lines instead of $expected"
}

# table TITLE COUNT TOOLS...: runs `TOOL` and the words in `arguments`, interleaved.
table() {
  local title=$1 count=$2 round tool
  shift 2
  for ((round = 1; round <= RUNS; round++)); do
    echo "$title: round $round of $RUNS" >&2
    for tool; do seconds "$tool" "${arguments[@]}" >>"$scratch/$tool"; done
  done
  printf '**%s; median (min–max) of %d rounds**\n\n' "$title" "$RUNS"
  printf '| | per second | times as fast |\n|---|---:|---:|\n'
  local base
  base=$(median "$scratch/$1")
  for tool; do
    sort -g "$scratch/$tool" | awk -v tool="${tool#*_}" -v count="$count" -v base="$base" '
      { t[NR] = $1 }
      END {
        m = NR % 2 ? t[(NR + 1) / 2] : (t[NR / 2] + t[NR / 2 + 1]) / 2
        printf "| %s | %.0f (%.0f–%.0f) | %.2f |\n", tool, count / m, count / t[NR], count / t[1], base / m
      }'
  done
  echo
}

median() {
  sort -g "$1" | awk '{ t[NR] = $1 } END { print NR % 2 ? t[(NR + 1) / 2] : (t[NR / 2] + t[NR / 2 + 1]) / 2 }'
}

have_parallel=false
command -v parallel >/dev/null && have_parallel=true || echo "GNU parallel is missing: left out" >&2

process_tools=(process_xargs process_keylane process_keylane_with_joblog process_keylane_with_log)
process_tools+=(process_keylane_with_keep_order)
worker_tools=(worker_keylane worker_keylane_any_child worker_keylane_two_keys worker_keylane_keep_order)
if $have_parallel; then
  process_tools+=(process_parallel)
  worker_tools+=(worker_parallel_pipe)
fi

echo "$(xargs --version | head -n 1); $($have_parallel && parallel --version | head -n 1); $("$KEYLANE" --version)"
echo
for tool in "${process_tools[@]}"; do check "$PROCESSES" "$tool" echo; done
arguments=(true)
table "\`true\` once per record, $PROCESSES records, $JOBS at a time" "$PROCESSES" "${process_tools[@]}"
for tool in "${worker_tools[@]}"; do check "$ROWS" "$tool"; done
arguments=()
table "\`cat\` as a long-lived child, $ROWS rows, $JOBS children" "$ROWS" "${worker_tools[@]}"
