// What is compared, in words that are printed with the table.

/** Each figure: title of a row and name of its value. */
export const figures = {
  one: [['one submit at a time, p50, µs', 'p50_us'], ['p99, µs', 'p99_us']],
  floor: [
    ['an HTTP echo, p50, µs', 'echo_p50_us'],
    ['a transaction of one row in SQLite, p50, µs', 'commit_p50_us'],
    ['their sum', 'p50_us'],
  ],
  many: [['submits a second, 64 at a time', 'per_second']],
  through: [['submitted, 64 at a time, and done meanwhile, jobs a second', 'per_second']],
  bulk: [['submitted in bulk, jobs or subtasks a second', 'per_second']],
  drain: [['drained, jobs or subtasks a second', 'per_second']],
  'drain-jobs': [['the same as jobs of one subtask', 'per_second']],
  'drain-leased': [['drained by remote workers, a request for each end', 'per_second']],
  hot: [['drained one at a time, a second', 'per_second']],
  start: [['submit to start, p50, µs', 'p50_us'], ['p99, µs', 'p99_us']],
  takeover: [['`kill -9` of the owner to the first start elsewhere, ms', 'takeover_ms']],
  idle: [['idle: statements a second', 'statements_per_second']],
  bytes: [
    ['tables, bytes for each job or subtask that waits', 'tables_waiting'],
    ['tables, bytes for each that is done', 'tables_done'],
    ['log of a submit, bytes', 'wal_submit'],
    ['log of start and end, bytes', 'wal_done'],
  ],
  'bytes-jobs': [
    ['the same as jobs of one subtask: tables, waiting', 'tables_waiting'],
    ['tables, done', 'tables_done'],
    ['log of a submit', 'wal_submit'],
    ['log of start and end', 'wal_done'],
  ],
};

/** What holds for all peers. */
export const common = 'A submit is acknowledged, and a job counts as done, when that is on the disk. Peers in PostgreSQL share a server, '
  + 'each with a fresh database for each figure (`fsync`, `synchronous_commit` and `full_page_writes` are on)';

/** Each peer, in the order of the columns. */
export const peers = {
  keylane: '`keylane serve`, store in a file, asked over HTTP; workers are processes that take leases over HTTP, '
    + 'and for `hot` and `start` one that the server runs',
  'keylane-postgres': '`keylane serve --store postgres://…`; otherwise the same as keylane',
  'keylane-embedded': "Keylane's service in a Rust program, store in a file, asked over HTTP; handlers are functions in it, "
    + 'where those of the others are in processes of their own',
  graphile: 'Graphile Worker (Node.js), in PostgreSQL',
  pgboss: 'pg-boss (Node.js), in PostgreSQL',
  river: 'River (Go), in PostgreSQL',
  bullmq: 'BullMQ (Node.js), in Redis that syncs its log before it answers',
};

const withoutKeys = ['graphile', 'pgboss', 'river', 'bullmq'];

/**
 * Cells that are not to be compared with the others of their row as they are: figure, peers, and the reason. `{count}` is
 * the number of jobs of the figure.
 */
export const notes = [
  {
    figure: 'hot',
    peers: withoutKeys,
    text: 'one worker that does one job at a time. The peers promise no order per key this way. River has no such order; '
      + 'Graphile Worker has it by named queues and pg-boss by policies of queues, which are not measured here',
  },
  {
    figure: 'bulk',
    peers: ['keylane', 'keylane-postgres', 'keylane-embedded'],
    text: 'subtasks of one job, accepted as a whole; the others insert jobs, 1000 at a time',
  },
  {
    figure: 'drain',
    peers: ['keylane', 'keylane-postgres', 'keylane-embedded'],
    text: 'subtasks of one job on 100,000 keys, each in order; the others drain jobs without an order',
  },
  {
    figure: 'bytes',
    peers: ['keylane-postgres'],
    text: 'subtasks of one job',
  },
  {
    figure: 'bytes',
    peers: ['graphile'],
    text: 'jobs that are done are deleted: their space is free for others, and the tables are as large as before',
  },
  {
    figure: 'takeover',
    peers: ['keylane-postgres'],
    text: 'two servers, one of which runs jobs, with {count} unfinished subtasks. The other peers have no owner: their other '
      + 'workers go on, and start what the killed worker ran after a time, by default 4 h with Graphile Worker, '
      + '15 min with pg-boss and 1 h with River',
  },
  {
    figure: 'idle',
    peers: ['keylane-postgres', ...withoutKeys],
    text: 'a server without a worker (Keylane), or one worker (the others), with default settings and no jobs',
  },
];
