#!/usr/bin/env bash
# Measures Keylane's task service beside others, in turns on one machine and one disk, and prints markdown:
#
#   bench-compare/services.sh > services.md
#
# It installs what is missing (Redis, PostgreSQL and Go by apt-get, the peers of Node.js and a Node.js by npm and
# River by Go, from lock files) and starts servers of its own, with data and ports of its own.
#
# Settings, all by environment:
#   FOLDER    where all data is: it should be on the disk in question    (services/data here)
#   ROUNDS    rounds, each of which runs every peer once                 (5)
#   FIGURES   which figures                                              (all)
#   PEERS     which peers                                                (all)
#   SCALE     the numbers of jobs, as a share of the usual, in percent   (100)
#   RAW       a file to which each run is added, as a line of JSON
#   BESIDE    the program `keylane`, instead of building it
#   EMBEDDED  the program of keylane-embedded, the bench `beside` of keylane-service, instead of building it
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")"

ROUNDS=${ROUNDS:-5}
FIGURES=${FIGURES:-one floor many through bulk drain drain-jobs drain-leased hot start takeover idle bytes bytes-jobs}
PEERS=${PEERS:-keylane keylane-postgres keylane-embedded bullmq graphile pgboss river}
SCALE=${SCALE:-100}
FOLDER=$(mkdir -p "${FOLDER:-services/data}" && cd "${FOLDER:-services/data}" && pwd)
export REDIS_PORT=${REDIS_PORT:-16379} PG_PORT=${PG_PORT:-15432}
# The second server has the next port.
export KEYLANE_PORT=${KEYLANE_PORT:-17420}

# How many jobs each figure is of: enough for most of a second, at least. Only the peers that are named run it.
both() { echo "keylane=$1 keylane-postgres=$1"; }
counts() {
  case $1 in
    one) echo "$(both 1000) keylane-embedded=1000 bullmq=1000 graphile=1000 pgboss=1000 river=1000" ;;
    floor) echo keylane-embedded=1000 ;;
    many) echo "$(both 20000) keylane-embedded=20000 bullmq=20000 graphile=5000 pgboss=5000 river=10000" ;;
    through) echo "$(both 20000) keylane-embedded=20000 bullmq=10000 graphile=5000 pgboss=5000 river=10000" ;;
    bulk) echo "$(both 500000) keylane-embedded=500000 bullmq=40000 graphile=40000 pgboss=40000 river=40000" ;;
    drain) echo "$(both 200000) keylane-embedded=200000 bullmq=10000 graphile=10000 pgboss=20000 river=20000" ;;
    drain-jobs | drain-leased) echo "$(both 20000) keylane-embedded=20000" ;;
    hot) echo "$(both 20000) keylane-embedded=50000 bullmq=2000 graphile=1000 pgboss=1000 river=500" ;;
    start) echo "$(both 500) keylane-embedded=500 bullmq=500 graphile=500 pgboss=500 river=500" ;;
    takeover) echo keylane-postgres=100000 ;;
    # Seconds.
    idle) echo keylane-postgres=30 graphile=30 pgboss=30 river=30 ;;
    bytes) echo keylane-postgres=40000 graphile=40000 pgboss=40000 river=40000 ;;
    bytes-jobs) echo keylane-postgres=20000 ;;
    *) fail "there is no figure $1" ;;
  esac
}

fail() {
  echo "services.sh: $*" >&2
  exit 1
}
as_root() { if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo "$@"; fi; }
# PostgreSQL refuses to run as root.
as_postgres() { if [[ $(id -u) -eq 0 ]]; then runuser -u postgres -- "$@"; else "$@"; fi; }
# has PEERS...: whether one of them is to be measured.
has() {
  local peer
  for peer; do [[ " $PEERS " != *" $peer "* ]] || return 0; done
  return 1
}

on_postgres=(keylane-postgres graphile pgboss river)

install() {
  local missing=()
  command -v npm >/dev/null || missing+=(nodejs npm)
  ! has bullmq || command -v redis-server >/dev/null || missing+=(redis-server)
  ! has "${on_postgres[@]}" || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
  ! has river || command -v go >/dev/null || missing+=(golang-go)
  if [[ ${#missing[@]} -ne 0 ]]; then
    as_root apt-get update -q >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}" >&2
  fi
  if [[ ! services/node_modules -nt services/package-lock.json ]]; then
    # What the lock file says; `npm ci` also wants those packages there that are for other platforms only.
    (cd services && npm install --no-save --no-fund --no-audit --loglevel=error >&2)
    touch services/node_modules
  fi
  if has river; then (cd services/river && go build -o river . >&2); fi
}

# The program that a build of cargo makes, by the messages of that build.
built() {
  (cd .. && cargo "$@" -q --message-format json) | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}
build_keylane() {
  if [[ -z ${BESIDE:-} ]] && has keylane keylane-postgres; then
    BESIDE=$(built build --release --bin keylane)
  fi
  if [[ -z ${EMBEDDED:-} ]] && has keylane-embedded; then
    EMBEDDED=$(built bench -p keylane-service --bench beside --no-run)
  fi
  export BESIDE
}

data=$(mktemp -d "$FOLDER/run.XXXXXX")
chmod 755 "$data"
redis= postgres=
finish() {
  [[ -z $redis ]] || kill "$redis" 2>/dev/null || true
  [[ -z $postgres ]] || as_postgres "$postgres" -D "$data/postgres" -m immediate stop >/dev/null 2>&1 || true
  wait
  rm -rf "$data"
}
trap finish EXIT

# A Redis without data, which syncs its log before it answers.
start_redis() {
  if [[ -n $redis ]]; then
    kill "$redis" && wait "$redis" || true
  fi
  rm -rf "$data/redis" && mkdir "$data/redis"
  redis-server --port "$REDIS_PORT" --bind 127.0.0.1 --dir "$data/redis" --save '' \
    --appendonly yes --appendfsync always --logfile "$data/redis.log" &
  redis=$!
  until redis-cli -p "$REDIS_PORT" ping >/dev/null 2>&1; do
    kill -0 "$redis" || fail "Redis did not start"
    sleep 0.05
  done
}

# With its default settings, which sync before a commit is acknowledged. Statements are counted where `idle` asks
# for it, and nowhere else: see postgres.mjs.
start_postgres() {
  local bin
  bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
  mkdir "$data/postgres"
  [[ $(id -u) -ne 0 ]] || chown postgres "$data/postgres"
  as_postgres "$bin/initdb" -D "$data/postgres" -U postgres -A trust -E UTF8 >/dev/null
  as_postgres "$bin/pg_ctl" -D "$data/postgres" -w -s -l "$data/postgres/server.log" \
    -o "-p $PG_PORT -c listen_addresses=127.0.0.1 -c unix_socket_directories='' \
      -c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.track=none -c compute_query_id=off" start >&2
  postgres=$bin/pg_ctl
}

# one PEER FIGURE COUNT: a line of JSON.
one() {
  case $1 in
    keylane-embedded) "$EMBEDDED" "$data" "$2" "$3" ;;
    bullmq) start_redis >&2 && "$node" services/bench.mjs "$1" "$2" "$3" ;;
    *) "$node" services/bench.mjs "$1" "$2" "$3" ;;
  esac
}

for peer in $PEERS; do
  [[ -f services/$peer.mjs || $peer == keylane-embedded ]] || fail "there is no peer $peer"
done
for figure in $FIGURES; do counts "$figure" >/dev/null; done
install
node=$(printf '%s\n' "$PWD"/services/node_modules/node-linux-*/bin/node | head -n 1)
build_keylane
if has "${on_postgres[@]}"; then start_postgres; fi
export DATA=$data

results=$data/results
for ((round = 1; round <= ROUNDS; round++)); do
  "$node" services/flush.mjs "$data" >>"$data/flushes"
  for figure in $FIGURES; do
    # It hardly varies, and takes long.
    [[ $figure != idle || $round -eq 1 ]] || continue
    echo "round $round of $ROUNDS: $figure" >&2
    read -ra wanted <<<"$(counts "$figure")"
    # Each round begins with the next one.
    for ((turn = 0; turn < ${#wanted[@]}; turn++)); do
      IFS== read -r peer count <<<"${wanted[(turn + round) % ${#wanted[@]}]}"
      has "$peer" || continue
      count=$((count * SCALE / 100))
      one "$peer" "$figure" $((count > 0 ? count : 1)) >"$data/line" || fail "$peer: $figure failed"
      cat "$data/line" >>"$results"
      [[ -z ${RAW:-} ]] || cat "$data/line" >>"$RAW"
    done
  done
done
[[ -s $results ]] || fail "none of the peers ($PEERS) has one of the figures ($FIGURES)"

versions=("node $("$node" --version)")
! has "${on_postgres[@]}" || versions+=("$("${postgres%/*}/postgres" --version)")
! has bullmq || versions+=("$(redis-server --version | sed 's/ sha.*//')")
! has river || versions+=("$(go version)")
printf '%s; ' "${versions[@]}" | sed 's/; $/\n/'
echo
"$node" services/table.mjs "$results" "$data/flushes"
