#!/usr/bin/env bash
# Measures Keylane's task service beside others, in turns on one machine and one disk, and prints markdown:
#
#   bench-compare/services.sh > services.md
#
# It installs what is missing (Redis and PostgreSQL by apt-get, the peers and their Node.js by npm, from a
# lock file) and starts servers of its own, with data and ports of its own.
#
# Settings, all by environment:
#   FOLDER    where all data is: it should be on the disk in question    (services/data here)
#   ROUNDS    rounds, each of which runs every peer once                 (5)
#   FIGURES   which figures                                              (all)
#   PEERS     which peers                                                (keylane bullmq graphile pgboss)
#   SCALE     the numbers of jobs, as a share of the usual, in percent   (100)
#   RAW       a file to which each run is added, as a line of JSON
#   BESIDE    Keylane's program, instead of building it
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")"

ROUNDS=${ROUNDS:-5}
FIGURES=${FIGURES:-one many through bulk drain drain-jobs drain-leased hot start}
PEERS=${PEERS:-keylane bullmq graphile pgboss}
SCALE=${SCALE:-100}
FOLDER=$(mkdir -p "${FOLDER:-services/data}" && cd "${FOLDER:-services/data}" && pwd)
export REDIS_PORT=${REDIS_PORT:-16379} PG_PORT=${PG_PORT:-15432}

# How many jobs each figure is of: enough for most of a second, at least. What only Keylane has, only it runs.
counts() {
  case $1 in
    one) echo keylane=1000 bullmq=1000 graphile=1000 pgboss=1000 ;;
    many) echo keylane=20000 bullmq=20000 graphile=5000 pgboss=5000 ;;
    through) echo keylane=20000 bullmq=10000 graphile=5000 pgboss=5000 ;;
    bulk) echo keylane=500000 bullmq=40000 graphile=40000 pgboss=40000 ;;
    drain) echo keylane=200000 bullmq=10000 graphile=10000 pgboss=20000 ;;
    drain-jobs) echo keylane=20000 ;;
    drain-leased) echo keylane=20000 ;;
    hot) echo keylane=50000 bullmq=2000 graphile=1000 pgboss=1000 ;;
    start) echo keylane=500 bullmq=500 graphile=500 pgboss=500 ;;
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
has() { [[ " $PEERS " == *" $1 "* ]]; }

install() {
  local missing=()
  command -v npm >/dev/null || missing+=(nodejs npm)
  command -v redis-server >/dev/null || missing+=(redis-server)
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
  if [[ ${#missing[@]} -ne 0 ]]; then
    as_root apt-get update -q >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}" >&2
  fi
  if [[ ! services/node_modules -nt services/package-lock.json ]]; then
    # What the lock file says; `npm ci` also wants those packages there that are for other platforms only.
    (cd services && npm install --no-save --no-fund --no-audit --loglevel=error >&2)
    touch services/node_modules
  fi
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

# With the settings that it has when nobody says anything, which sync before a commit is acknowledged.
start_postgres() {
  local bin
  bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
  mkdir "$data/postgres"
  [[ $(id -u) -ne 0 ]] || chown postgres "$data/postgres"
  as_postgres "$bin/initdb" -D "$data/postgres" -U postgres -A trust -E UTF8 >/dev/null
  as_postgres "$bin/pg_ctl" -D "$data/postgres" -w -s -l "$data/postgres/server.log" \
    -o "-p $PG_PORT -c listen_addresses=127.0.0.1 -c unix_socket_directories=''" start >&2
  postgres=$bin/pg_ctl
}

# one PEER FIGURE COUNT: a line of JSON.
one() {
  case $1 in
    keylane) "$BESIDE" "$data" "$2" "$3" ;;
    bullmq) start_redis >&2 && "$node" services/bench.mjs "$1" "$2" "$3" ;;
    *) "$node" services/bench.mjs "$1" "$2" "$3" ;;
  esac
}

install
node=$(printf '%s\n' "$PWD"/services/node_modules/node-linux-*/bin/node | head -n 1)
if [[ -z ${BESIDE:-} ]] && has keylane; then
  BESIDE=$(cd .. && cargo bench -q -p keylane-service --bench beside --no-run --message-format json \
    | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
fi
if has graphile || has pgboss; then start_postgres; fi

results=$data/results
for ((round = 1; round <= ROUNDS; round++)); do
  for figure in $FIGURES; do
    echo "round $round of $ROUNDS: $figure" >&2
    read -ra wanted <<<"$(counts "$figure")"
    # Each round begins with the next one.
    for ((turn = 0; turn < ${#wanted[@]}; turn++)); do
      IFS== read -r peer count <<<"${wanted[(turn + round) % ${#wanted[@]}]}"
      has "$peer" || continue
      one "$peer" "$figure" $((count * SCALE / 100)) >"$data/line" || fail "$peer: $figure failed"
      cat "$data/line" >>"$results"
      [[ -z ${RAW:-} ]] || cat "$data/line" >>"$RAW"
    done
  done
done

echo "$(redis-server --version | sed 's/ sha.*//'); $(cat "$data"/postgres/PG_VERSION 2>/dev/null | sed 's/^/PostgreSQL /'); node $("$node" --version)"
echo
"$node" services/table.mjs "$results"
