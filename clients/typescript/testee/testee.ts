/**
 * Program that the conformance suite drives: commands as lines of JSON on standard input, answers and
 * events as lines on standard output. The protocol is described with the suite.
 */

import { createInterface } from "node:readline";

import {
  ApiError,
  Client,
  TaskCancelled,
  TaskFailure,
  type SetSchedule,
  type SubmitJob,
  type SubmitSubtask,
  type Task,
  type Worker,
} from "../src/index.js";

interface Command {
  readonly id: number;
  readonly do: string;
  readonly [field: string]: unknown;
}

/** Task whose outcome the suite decides. */
interface OpenTask {
  readonly task: Task;
  readonly finish: (result: unknown) => void;
  readonly fail: (error: Error) => void;
}

const client = new Client({ url: process.env["KEYLANE_URLS"], token: process.env["KEYLANE_TOKEN"] });
const tasks = new Map<string, OpenTask>();
const workers = new Map<number, { worker: Worker; run: Promise<void> }>();

const COMMANDS: Record<string, (command: Command) => Promise<unknown>> = {
  submit: async (command) => {
    const {
      kind,
      payload,
      key,
      subtasks,
      options,
      idempotency_key: idempotencyKey,
    } = command as Command & {
      kind: string;
      key?: string;
      subtasks?: SubmitSubtask[];
      options?: Partial<SubmitJob>;
      idempotency_key?: string;
    };
    const job: SubmitJob = { ...options, kind };
    if (payload !== undefined) job.payload = payload;
    if (key !== undefined) job.key = key;
    if (subtasks !== undefined) job.subtasks = subtasks;
    return client.submit(job, { idempotencyKey });
  },
  submit_many: async (command) => {
    const {
      kind,
      count,
      keys,
      idempotency_key: idempotencyKey,
    } = command as Command & {
      kind: string;
      count: number;
      keys: number;
      idempotency_key?: string;
    };
    function* subtasks(): Generator<SubmitSubtask> {
      for (let number = 0; number < count; number += 1) yield { payload: number, key: `k${String(number % keys)}` };
    }
    return client.submitMany({ kind }, subtasks, { idempotencyKey });
  },
  wait: (command) => client.wait(text(command, "job")),
  job: (command) => client.job(text(command, "job")),
  cancel: (command) => {
    const mode = command["mode"] as "graceful" | "kill" | undefined;
    return client.cancel(text(command, "job"), mode === undefined ? undefined : { mode });
  },
  pause: (command) => client.pause(text(command, "job")),
  resume: (command) => client.resume(text(command, "job")),
  retry: (command) => client.retry(text(command, "job")),
  results: (command) => client.results(text(command, "job")).toArray(),
  events: async (command) => {
    for await (const event of client.events(text(command, "job"))) {
      print({ event: "job-event", of: command.id, data: event });
    }
    return {};
  },
  kinds: () => client.kinds.list(),
  keys: async (command) =>
    command["key"] === undefined ? client.keys.list() : ((await client.keys.get(text(command, "key"))) ?? null),
  schedule_put: (command) => client.schedules.put(text(command, "name"), command["schedule"] as SetSchedule),
  schedules: () => client.schedules.list().toArray(),
  work: (command) => work(command),
  stop_worker: async (command) => {
    await workers.get(command["of"] as number)?.worker.stop();
    return {};
  },
  finish: (command) => {
    tasks.get(text(command, "lease"))?.finish(command["result"]);
    return Promise.resolve({});
  },
  fail: (command) => {
    const {
      error,
      retry,
      after_ms: afterMs,
    } = command as Command & { error: string; retry?: boolean; after_ms?: number };
    tasks.get(text(command, "lease"))?.fail(
      new TaskFailure(error, {
        ...(retry === undefined ? {} : { retry }),
        ...(afterMs === undefined ? {} : { afterMs }),
      }),
    );
    return Promise.resolve({});
  },
  progress: (command) => {
    tasks.get(text(command, "lease"))?.task.progress(command["progress"] as number);
    return Promise.resolve({});
  },
};

/** Starts a worker; the answer comes when it has started. An error of the run is the answer if it comes before. */
async function work(command: Command): Promise<unknown> {
  const {
    id,
    kinds,
    concurrency = 8,
    batch = concurrency,
    worker: name,
  } = command as Command & {
    kinds: string[];
    concurrency?: number;
    batch?: number;
    worker?: string;
  };
  const worker = client.worker({ name, concurrency, maxLeases: Math.max(batch, concurrency) });
  for (const kind of kinds) worker.kind(kind, (task) => handle(id, task));
  const run = worker.run();
  workers.set(id, { worker, run });
  run.catch((error: unknown) => {
    print({ event: "worker-error", of: id, error: describe(error) });
  });
  return Promise.resolve({});
}

function handle(of: number, task: Task): Promise<unknown> {
  const { id: lease, job, number, keys, attempt, fence, payload, signal } = task;
  return new Promise((finish, fail) => {
    tasks.set(lease, { task, finish, fail });
    signal.addEventListener("abort", () => {
      print({ event: "cancelled", of, lease });
      // The outcome of a cancelled job counts; that of a lost lease does not.
      if (signal.reason instanceof TaskCancelled && signal.reason.reason === "lease-lost") fail(signal.reason);
    });
    print({ event: "task", of, task: { lease, job, number, keys, attempt, fence, payload } });
  }).finally(() => tasks.delete(lease));
}

function text(command: Command, field: string): string {
  const value = command[field];
  if (typeof value !== "string") throw new Error(`the command \`${command.do}\` needs a text \`${field}\``);
  return value;
}

function describe(error: unknown): Record<string, unknown> {
  if (error instanceof ApiError)
    return { code: error.code, status: error.status, detail: error.detail, errors: error.errors };
  const name = error instanceof Error ? error.name : "Error";
  return { code: name, detail: error instanceof Error ? error.message : String(error) };
}

async function execute(command: Command): Promise<void> {
  try {
    const action = COMMANDS[command.do];
    if (action === undefined) throw new Error(`there is no command \`${command.do}\``);
    print({ id: command.id, ok: (await action(command)) ?? null });
  } catch (error) {
    print({ id: command.id, error: describe(error) });
  }
}

function print(line: unknown): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim() !== "") void execute(JSON.parse(line) as Command);
}
process.exit(0);
