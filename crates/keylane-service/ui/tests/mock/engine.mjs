// A small task service in memory: lanes, slots, the rules, retries, pauses. Only as true as the dashboard needs.

import { EventEmitter } from "node:events";

const FINAL = new Set(["succeeded", "failed", "cancelled"]);
const DECISIONS_KEPT = 200;
const SLICES_A_TICK = 300;
const EVENTS_KEPT = 1_000;

/** Numbers that are the same in each run (mulberry32). */
export function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

const iso = (ms) => (ms === undefined || ms === null ? undefined : new Date(ms).toISOString());

export class Refused extends Error {
  constructor(status, code, detail, errors = []) {
    super(detail);
    Object.assign(this, { status, code, errors });
  }
}

export class Engine extends EventEmitter {
  jobs = new Map();
  /** Id of a job that another operator ends before the next cancellation. @type {string | undefined} */
  refuseNext;
  /** Ids of jobs that were. @type {Set<string>} */
  removed = new Set();
  keys = new Map();
  running = new Map();
  decisions = [];
  /** @type {any[]} */
  schedules = [];
  /** Entries of the audit log, the newest first. @type {any[]} */
  audit = [];
  events = [];
  kinds = [];
  workers = [];

  /** Servers that share the store: none, as with a file. */
  nodes = [];
  webhooks = [];
  tenants = [{ name: "default", configured: false, weight: 1, min_workers: 0, jobs: 0, running: 0, unfinished: 0 }];
  totals = { succeeded: 0, failed: 0, cancelled: 0, superseded: 0, retried: 0 };
  startedAt = Date.now() - 3 * 3_600_000;
  #nextEvent = 1;
  #nextJob = 1;
  #ended = [];
  #dropped = 0;
  #timelineNumber = 0;
  #timers = new Set();
  #changed = new Set();
  #random;

  constructor({ slots = 8, seed = 7 } = {}) {
    super();
    this.setMaxListeners(0);
    this.slots = slots;
    this.#random = random(seed);
    this.free = Array.from({ length: slots }, (_, slot) => slot);
    this.ticker = setInterval(() => this.#tick(), 500);
  }

  close() {
    clearInterval(this.ticker);
    for (const timer of this.#timers) clearTimeout(timer);
    this.removeAllListeners();
  }

  // Jobs

  submit({
    kind,
    name,
    labels = {},
    weight = 1,
    priority = "normal",
    after = [],
    after_on = "success",
    webhook,
    expires_ms,
    subtasks,
    payload = null,
    key,
    keys,
    delay_ms,
    run_at,
    attempts,
    on_fail,
    on_error,
  }) {
    const known = this.kinds.find((one) => one.name === kind);
    if (!known)
      throw new Refused(422, "unknown-kind", `There is no kind "${kind}".`, [
        { pointer: "/kind", detail: "not one of the server's kinds" },
      ]);
    const now = Date.now();
    const number = this.#nextJob++;
    const id = `job_${now.toString(16).padStart(12, "0")}7${Math.floor(this.#random() * 4096)
      .toString(16)
      .padStart(3, "0")}8${Math.floor(this.#random() * 2 ** 20)
      .toString(16)
      .padStart(5, "0")}${number.toString(16).padStart(10, "0")}`;
    const list = subtasks ?? [{ key, keys, payload }];
    const job = {
      id,
      kind,
      name,
      labels,
      weight,
      priority,
      after,
      after_on,
      webhook,
      expires_at: expires_ms ? now + expires_ms : undefined,
      number,
      state: "queued",
      created_at: now,
      run_at: run_at ? Date.parse(run_at) : delay_ms ? now + delay_ms : undefined,
      attempts: attempts ?? known.attempts,
      on_fail: on_fail ?? "continue",
      on_error: on_error ?? "finish_all",
      counts: {
        total: list.length,
        waiting: list.length,
        ready: 0,
        running: 0,
        backing_off: 0,
        succeeded: 0,
        failed: 0,
        cancelled: 0,
        superseded: 0,
      },
      ready: [],
      readyAt: 0,
      ended: [],
      version: 1,
    };
    job.subtasks = list.map((one, index) => ({
      job,
      number: index,
      keys: one.keys ?? (one.key ? [one.key] : []),
      payload: one.payload ?? null,
      state: "waiting",
      attempts: 0,
    }));
    this.jobs.set(id, job);
    if (job.run_at > now) {
      job.state = "scheduled";
      this.#after(job.run_at - now, () => this.#begin(job));
    }
    for (const subtask of job.subtasks) this.#enter(subtask);
    this.#emit("job_accepted", { job: this.view(job) });
    this.#serve();
    return job;
  }

  #begin(job) {
    if (job.state !== "scheduled") return;
    job.state = "queued";
    for (const subtask of job.subtasks) this.#mayBeReady(subtask);
    this.#touch(job);
    this.#serve();
  }

  job(id) {
    const job = this.jobs.get(id);
    if (this.removed.has(id)) throw new Refused(410, "gone", "There was such a job, and it was removed.");
    if (!job) throw new Refused(404, "not-found", "There is no such job.");
    return job;
  }

  subtask(id, number) {
    const subtask = this.job(id).subtasks[number];
    if (!subtask) throw new Refused(404, "not-found", "There is no such subtask.");
    return subtask;
  }

  pause(id) {
    const job = this.job(id);
    if (FINAL.has(job.state)) throw new Refused(409, "job-over", "The job is over.");
    job.state = "paused";
    for (const subtask of job.subtasks) if (subtask.state === "ready") this.#move(subtask, "waiting");
    job.ready = [];
    job.readyAt = 0;
    this.#touch(job);
    return job;
  }

  resume(id) {
    const job = this.job(id);
    if (job.state !== "paused") throw new Refused(409, "not-paused", "The job is not paused.");
    job.state = job.started_at ? "running" : "queued";
    for (const subtask of job.subtasks) this.#mayBeReady(subtask);
    this.#touch(job);
    this.#serve();
    return job;
  }

  cancel(id, mode) {
    if (this.refuseNext === id) throw new Refused(409, "conflict", "It is over.");
    const job = this.job(id);
    if (FINAL.has(job.state)) return job;
    job.state = "cancelling";
    for (const subtask of job.subtasks) {
      if (["waiting", "ready", "backing_off"].includes(subtask.state)) this.#end(subtask, "cancelled");
      else if (subtask.state === "running" && mode === "kill") this.#finish(subtask, "cancelled");
    }
    this.#mayBeOver(job);
    this.#touch(job);
    this.#serve();
    return job;
  }

  retry(id, only, chosen) {
    const job = this.job(id);
    const wanted = only === "unsuccessful" || chosen ? ["failed", "cancelled", "skipped"] : ["failed"];
    const isChosen = ({ number }) => !chosen || chosen.some((one) => one.number === number);
    const again = job.subtasks.filter((one) => wanted.includes(one.state) && isChosen(one));
    if (again.length === 0) throw new Refused(409, "nothing-to-retry", "No subtask is to be tried again.");
    job.state = "queued";
    job.ended_at = undefined;
    job.error = undefined;
    for (const subtask of again) {
      this.#move(subtask, "waiting");
      Object.assign(subtask, { attempts: 0, outcome: undefined, cured: true });
      const edited = chosen?.find(({ number }) => number === subtask.number)?.payload;
      if (edited !== undefined) subtask.payload = edited;
      job.ended = job.ended.filter((one) => one !== subtask);
      this.#enter(subtask);
    }
    this.#touch(job);
    this.#serve();
    return job;
  }

  patch(id, { weight, labels, name }) {
    const job = this.job(id);
    if (weight !== undefined && !(weight >= 1))
      throw new Refused(422, "invalid", "The weight is too low.", [{ pointer: "/weight", detail: "at least 1" }]);
    Object.assign(job, { weight: weight ?? job.weight, labels: labels ?? job.labels, name: name ?? job.name });
    this.#touch(job);
    return job;
  }

  remove(id) {
    const job = this.job(id);
    if (!FINAL.has(job.state)) throw new Refused(409, "job-not-over", "The job is not over: cancel it first.");
    this.jobs.delete(id);
    this.removed.add(id);
    this.#emit("job_purged", { job: this.view(job) });
  }

  // Lanes

  #lane(name) {
    let lane = this.keys.get(name);
    if (!lane) this.keys.set(name, (lane = { key: name, state: "open", queue: [], first: 0, since: Date.now() }));
    return lane;
  }

  #enter(subtask) {
    for (const name of subtask.keys) {
      const lane = this.#lane(name);
      if (lane.first === lane.queue.length) lane.since = Date.now();
      lane.queue.push(subtask);
    }
    this.#mayBeReady(subtask);
  }

  #isHead(subtask) {
    return subtask.keys.every((name) => {
      const lane = this.keys.get(name);
      return lane.state === "open" && lane.queue[lane.first] === subtask;
    });
  }

  #mayBeReady(subtask) {
    if (subtask.state !== "waiting" || !["queued", "running"].includes(subtask.job.state) || !this.#isHead(subtask))
      return;
    this.#move(subtask, "ready");
    subtask.job.ready.push(subtask);
  }

  #leave(subtask) {
    for (const name of subtask.keys) {
      const lane = this.keys.get(name);
      const wasHead = lane.queue[lane.first] === subtask;
      if (wasHead) {
        lane.first += 1;
        while (lane.queue[lane.first] && isOver(lane.queue[lane.first])) lane.first += 1;
        lane.since = Date.now();
      }
      const next = lane.queue[lane.first];
      if (next) this.#mayBeReady(next);
      else if (lane.state === "open") this.keys.delete(name);
    }
  }

  keyView(lane) {
    const rest = lane.queue.slice(lane.first).filter((one) => !isOver(one));
    const head = rest[0];
    return {
      key: lane.key,
      state: lane.state,
      length: rest.length,
      head: head && {
        job: head.job.id,
        number: head.number,
        state: head.state,
        since: iso(lane.since),
        age_ms: Date.now() - lane.since,
        attempts: head.attempts,
      },
    };
  }

  steer(name, verb) {
    const lane = this.keys.get(name) ?? (verb === "pause" ? this.#lane(name) : undefined);
    if (!lane) throw new Refused(404, "not-found", "Nothing of this key is unfinished.");
    const head = lane.queue[lane.first];
    if (verb === "pause") {
      lane.state = "paused";
      if (head?.state === "ready") this.#unready(head);
    } else if (verb === "resume") {
      lane.state = "open";
    } else if (!head || head.state === "running") {
      throw new Refused(409, "head-runs", "The head of the key runs, or there is none.");
    } else if (verb === "skip-head") {
      if (lane.state === "stopped") lane.state = "open";
      this.#end(head, "skipped");
      this.#mayBeOver(head.job);
    } else {
      if (lane.state === "stopped") lane.state = "open";
      clearTimeout(head.timer);
      if (head.state !== "ready") this.#move(head, "waiting");
      head.attempts = 0;
      head.cured = true;
    }
    const next = lane.queue[lane.first];
    if (next) this.#mayBeReady(next);
    if (head) this.#touch(head.job);
    this.#emit("key_changed", { key: name });
    this.#serve();
    return this.keyView(lane);
  }

  #unready(subtask) {
    this.#move(subtask, "waiting");
    subtask.job.ready = subtask.job.ready.filter((one) => one !== subtask);
    subtask.job.readyAt = 0;
  }

  // Slots

  #move(subtask, state) {
    const { counts } = subtask.job;
    const field = (name) => (name === "skipped" ? "cancelled" : name);
    counts[field(subtask.state)] -= 1;
    counts[field(state)] += 1;
    subtask.state = state;
  }

  #takeReady(job) {
    while (job.readyAt < job.ready.length) {
      const subtask = job.ready[job.readyAt];
      if (subtask.state === "ready") return subtask;
      job.readyAt += 1;
    }
    job.ready = [];
    job.readyAt = 0;
    return null;
  }

  #choose() {
    const open = [...this.jobs.values()].filter(
      (job) => ["queued", "running"].includes(job.state) && this.#takeReady(job),
    );
    const active = [...this.jobs.values()].filter((job) => job.counts.running > 0).length;
    const keep = open.find((job) => job.counts.running === 0 && job.started_at);
    if (keep) return { job: keep, rule: "keep" };
    const waiting = open.find((job) => !job.started_at);
    if (waiting && active < this.slots) return { job: waiting, rule: "admit" };
    const left = (job) => job.counts.total - job.ended.length;
    const least = open.filter((job) => job.started_at).sort((a, b) => left(a) - left(b))[0];
    if (!least) return null;
    return { job: least, rule: this.#random() < 0.02 ? "aged" : "least" };
  }

  #serve() {
    while (this.free.length > 0) {
      const choice = this.#choose();
      if (!choice) return;
      this.#run(choice.job, choice.rule);
    }
  }

  #run(job, rule) {
    const subtask = this.#takeReady(job);
    job.readyAt += 1;
    const slot = this.free.shift();
    const now = Date.now();
    subtask.attempts += 1;
    this.#move(subtask, "running");
    job.state = job.state === "queued" ? "running" : job.state;
    job.started_at ??= now;
    this.running.set(slot, { slot, subtask, attempt: subtask.attempts, since: now, rule });
    subtask.slot = slot;
    this.decisions.push({ at: iso(now), job: job.id, rule });
    if (this.decisions.length > DECISIONS_KEPT) this.decisions.shift();
    this.#changed.add(job);
    subtask.timer = this.#after(this.#lasts(subtask), () => this.#finish(subtask, this.#fate(subtask)));
  }

  #lasts({ payload }) {
    const ms = payload?.ms ?? 200;
    return Math.max(1, payload?.steady ? ms : ms * (0.4 + 1.2 * this.#random()));
  }

  #fate(subtask) {
    const { payload, attempts, cured, job } = subtask;
    const fails = !cured && (payload?.fail === true || (payload?.fail_times ?? 0) >= attempts);
    if (!fails) return "succeeded";
    return attempts < job.attempts ? "retry" : "failed";
  }

  #finish(subtask, outcome) {
    const run = this.running.get(subtask.slot);
    if (!run || run.subtask !== subtask) return;
    clearTimeout(subtask.timer);
    this.running.delete(subtask.slot);
    this.free.push(subtask.slot);
    this.free.sort((a, b) => a - b);
    this.#keepSlice({ ...this.#slice(run), end: iso(Date.now()), outcome });
    this.#keepLog(subtask, run, outcome);
    if (outcome === "retry") this.#backOff(subtask);
    else this.#end(subtask, outcome, run);
    this.#mayBeOver(subtask.job);
    this.#serve();
  }

  /** What the payload has it say, unless that is nothing. */
  #keepLog(subtask, run, outcome) {
    if (!subtask.payload?.say) return;
    subtask.logs ??= [];
    subtask.logs.push({
      attempt: run.attempt,
      fence: subtask.logs.length + 1,
      state: outcome === "retry" ? "failed" : outcome,
      started_at: iso(run.since),
      ended_at: iso(Date.now()),
      left_out_bytes: subtask.payload.left_out ?? 0,
      text: subtask.payload.say,
    });
  }

  #backOff(subtask) {
    this.totals.retried += 1;
    this.#move(subtask, "backing_off");
    const wait = (subtask.payload?.backoff_ms ?? 1_500) * 2 ** (subtask.attempts - 1);
    subtask.until = Date.now() + wait;
    subtask.timer = this.#after(wait, () => {
      if (subtask.state !== "backing_off") return;
      this.#move(subtask, "waiting");
      this.#mayBeReady(subtask);
      this.#serve();
    });
  }

  #end(subtask, outcome, run) {
    const { job } = subtask;
    clearTimeout(subtask.timer);
    this.#move(subtask, outcome);
    this.totals[outcome === "skipped" ? "cancelled" : outcome] += 1;
    const error =
      outcome === "failed"
        ? (subtask.payload?.error ?? `exit status 1: the handler failed on ${subtask.number}`)
        : undefined;
    subtask.outcome = {
      number: subtask.number,
      keys: subtask.keys,
      outcome,
      attempt: subtask.attempts,
      started_at: iso(run?.since),
      ended_at: iso(Date.now()),
      error,
      result: outcome === "succeeded" ? { ok: true, n: subtask.number } : undefined,
    };
    job.ended.push(subtask);
    job.error ??= error;
    this.#changed.add(job);
    if (outcome === "failed")
      this.#emit("subtask_failed", { job: this.view(job), number: subtask.number, key: subtask.keys[0], error });
    if (outcome === "failed" && job.on_fail === "stop_key") for (const name of subtask.keys) this.#stopKey(name);
    this.#leave(subtask);
    if (outcome === "failed" && job.on_error === "fail_fast") this.cancel(job.id, "graceful");
  }

  #stopKey(name) {
    this.#lane(name).state = "stopped";
    this.#emit("key_changed", { key: name });
  }

  #mayBeOver(job) {
    if (job.ended.length < job.counts.total || FINAL.has(job.state)) return;
    const { failed } = job.counts;
    job.state = job.state === "cancelling" ? "cancelled" : failed > 0 ? "failed" : "succeeded";
    job.ended_at = Date.now();
    job.version += 1;
    this.#changed.delete(job);
    this.#emit("job_ended", { job: this.view(job) });
  }

  #after(ms, work) {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      work();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }

  // Reasons for waiting

  view(job) {
    const { id, kind, name, labels, state, weight, counts, created_at, started_at, ended_at, run_at, error, version } =
      job;
    const { priority, after, after_on, expires_at } = job;
    const over = job.ended.length;
    const rate = started_at && over > 0 ? (Date.now() - started_at) / over : undefined;
    const because = FINAL.has(state) ? [] : this.because(job);
    return {
      id,
      kind,
      name,
      labels,
      state,
      weight,
      priority,
      ...(after.length > 0 ? { after, after_on } : {}),
      expires_at: iso(expires_at),
      counts: { ...counts },
      progress: counts.total === 0 ? 1 : over / counts.total,
      created_at: iso(created_at),
      started_at: iso(started_at),
      ended_at: iso(ended_at),
      run_at: iso(run_at),
      eta_ms: rate !== undefined && !FINAL.has(state) ? Math.round(rate * (counts.total - over)) : undefined,
      waiting_because: because.length > 0 ? because : undefined,
      error: state === "failed" ? error : undefined,
      version,
    };
  }

  /** The key that decides the job's end, found among its first unfinished subtasks. */
  chain(job) {
    const open = job.subtasks.filter(({ state }) => state !== undefined && !FINAL.has(state) && state !== "skipped");
    const keys = new Set(open.slice(0, 64).flatMap(({ keys: own }) => own));
    const chains = [...keys].map((key) => {
      const lane = this.keys.get(key);
      return { key, subtasks: lane.queue.findLastIndex((subtask) => subtask.job === job) + 1 - lane.first };
    });
    const [longest] = chains.sort((a, b) => b.subtasks - a.subtasks);
    if (!longest || longest.subtasks < 2) return {};
    return { longest_key: longest, useful_workers: Math.max(1, Math.ceil(open.length / longest.subtasks)) };
  }

  because(job) {
    const { waiting, ready, backing_off } = job.counts;
    if (job.state === "scheduled")
      return [
        { reason: "scheduled", text: "It begins when its time has come.", count: waiting, until: iso(job.run_at) },
      ];
    if (job.state === "paused") return [{ reason: "job_paused", text: "the job is paused; resume it", count: waiting }];
    const reasons = [];
    if (waiting > 0) {
      const one = job.subtasks.find((subtask) => subtask.state === "waiting");
      const why = one && this.why(one);
      if (why) reasons.push({ ...why, count: waiting });
    }
    if (ready > 0)
      reasons.push({
        reason: job.started_at ? "no_slot" : "not_admitted",
        text: job.started_at
          ? `All ${this.slots} slots are taken; this job has ${job.counts.running}.`
          : "Jobs before it come first.",
        count: ready,
      });
    if (backing_off > 0) {
      const one = job.subtasks.find((subtask) => subtask.state === "backing_off");
      reasons.push({
        reason: "backing_off",
        text: "An attempt failed, and the next one comes later.",
        count: backing_off,
        until: iso(one?.until),
      });
    }
    return reasons;
  }

  why(subtask) {
    if (subtask.state === "backing_off")
      return {
        reason: "backing_off",
        text: "An attempt failed, and the next one comes later.",
        until: iso(subtask.until),
      };
    if (subtask.state === "ready") return { reason: "no_slot", text: `All ${this.slots} slots are taken.` };
    if (subtask.state !== "waiting") return undefined;
    if (subtask.job.state === "paused") return { reason: "job_paused", text: "the job is paused; resume it" };
    for (const key of subtask.keys) {
      const lane = this.keys.get(key);
      if (lane.state !== "open")
        return {
          reason: lane.state === "paused" ? "key_paused" : "key_stopped",
          text:
            lane.state === "paused"
              ? `Key ${key} is paused.`
              : `Key ${key} has stopped: one of its subtasks failed for good.`,
          key,
        };
      const head = lane.queue[lane.first];
      if (head === subtask) continue;
      const position = lane.queue.indexOf(subtask, lane.first) - lane.first;
      return {
        reason: "key_order",
        text: `${position === 1 ? "One subtask" : `${position} subtasks`} of key ${key} come before it.`,
        key,
        position,
        job: head.job.id,
        number: head.number,
        since: iso(lane.since),
      };
    }
    return undefined;
  }

  subtaskView(subtask) {
    const { number, keys, state, attempts, payload, outcome } = subtask;
    const { attempts: max_attempts } = subtask.job;
    return { number, keys, state, attempts, max_attempts, payload, outcome, progress: state === "running" ? 0.42 : undefined, waiting_because: this.why(subtask) };
  }

  /** Samples of a past with a gap, in which the first jobs had all slots. */
  history(from, to) {
    const interval_ms = to - from <= 3_600_000 ? 10_000 : to - from <= 86_400_000 ? 60_000 : 900_000;
    const jobs = [...this.jobs.values()].slice(0, 3);
    const samples = [];
    for (let at = Math.ceil(from / interval_ms) * interval_ms; jobs.length > 0 && at < to; at += interval_ms) {
      const part = (at - from) / (to - from);
      if (part > 0.4 && part < 0.5) continue;
      const wave = 0.5 + 0.5 * Math.sin(part * 9);
      const busy = Math.round(this.slots * (0.4 + 0.6 * wave) * 100) / 100;
      samples.push({
        at: iso(at),
        slots: this.slots,
        busy,
        succeeded: Math.round((interval_ms / 1000) * (2 + 6 * wave)),
        failed: part > 0.7 ? Math.round(interval_ms / 10_000) : 0,
        cancelled: 0,
        retried: Math.round((interval_ms / 10_000) * wave),
        waiting: {
          key: 40 * wave,
          stopped: part > 0.7 ? 3 : 0,
          backoff: 5 * wave,
          scheduled: 0,
          entering: 0,
          paused: 0,
          kind: 12,
          tenant: 0,
          slot: 90 * (1 - part),
        },
        jobs: jobs.map(({ id, kind, name }, index) => ({ job: id, kind, name, busy: Math.round(busy * [0.5, 0.3, 0.1][index] * 100) / 100 })),
      });
    }
    const slices = this.#ended.slice(-200);
    return { from: iso(from), to: iso(to), interval_ms, samples, ...(slices.length > 0 && { slices }) };
  }

  scheduler() {
    const open = [...this.jobs.values()].filter((job) => !FINAL.has(job.state));
    return {
      slots: this.slots,
      busy: this.running.size,
      jobs: open.length,
      active: open.filter((job) => job.started_at).length,
      draining: false,
      running: [...this.running.values()].map(({ slot, subtask, attempt, since }) => ({
        slot,
        job: subtask.job.id,
        number: subtask.number,
        keys: subtask.keys,
        attempt,
        since: iso(since),
      })),
      decisions: this.decisions,
    };
  }

  /** Counts from zero, as after a restart of the server. */
  restart() {
    this.totals = { succeeded: 0, failed: 0, cancelled: 0, superseded: 0, retried: 0 };
  }

  summary() {
    const sum = { waiting: 0, ready: 0, backing_off: 0 };
    const jobs = {};
    for (const job of this.jobs.values()) {
      if (FINAL.has(job.state)) continue;
      jobs[job.state] = (jobs[job.state] ?? 0) + 1;
      for (const name of Object.keys(sum)) sum[name] += job.counts[name];
    }
    const heads = [...this.keys.values()].filter((lane) => lane.queue.length > lane.first);
    const oldest = heads.reduce((least, lane) => Math.min(least, lane.since), Date.now());
    return {
      at: iso(Date.now()),
      slots: this.slots,
      busy: this.running.size,
      jobs,
      ...sum,
      succeeded_total: this.totals.succeeded,
      failed_total: this.totals.failed,
      cancelled_total: this.totals.cancelled,
      superseded_total: this.totals.superseded,
      retried_total: this.totals.retried,
      keys: heads.length,
      longest_key: longestOf(heads),
      oldest_head_ms: Date.now() - oldest,
      store_bytes: 41_943_040 + this.totals.succeeded * 90,
      store: this.store ?? "ok",
      websockets: 3,
      started_at: iso(this.startedAt),
      draining: false,
    };
  }

  #slice({ slot, subtask, attempt, since, rule }) {
    return { slot, job: subtask.job.id, number: subtask.number, keys: subtask.keys, attempt, begin: iso(since), rule };
  }

  #keepSlice(slice) {
    this.#ended.push(slice);
    // Half a minute's worth, for later clients; a tick shows less.
    if (this.#ended.length > 20_000) this.#ended.splice(0, 5_000);
    this.#timelineNumber += 1;
  }

  timeline(after) {
    const ended =
      after === undefined
        ? this.#ended.slice(-4_000)
        : this.#ended.slice(Math.max(0, this.#ended.length - (this.#timelineNumber - after)));
    return {
      slices: [...ended, ...[...this.running.values()].map((run) => this.#slice(run))],
      next: this.#timelineNumber,
      dropped: 0,
    };
  }

  #sentUpTo = 0;

  #tick() {
    const { slices, next } = this.timeline(this.#sentUpTo);
    this.#sentUpTo = next;
    const over = Math.max(0, slices.length - this.running.size - SLICES_A_TICK);
    this.#dropped = over;
    this.#emit("summary", { summary: this.summary() });
    this.#emit("timeline", { timeline: { slices: slices.slice(over), next, dropped: this.#dropped } });
    for (const job of this.#changed) {
      job.version += 1;
      this.#emit("job_changed", { job: this.view(job) });
    }
    this.#changed.clear();
  }

  #touch(job) {
    if (!this.jobs.has(job.id)) return;
    job.version += 1;
    this.#changed.delete(job);
    if (!FINAL.has(job.state)) this.#emit("job_changed", { job: this.view(job) });
  }

  #emit(event, about) {
    const message = { id: String(this.#nextEvent++), event, at: iso(Date.now()), ...about };
    this.events.push(message);
    if (this.events.length > EVENTS_KEPT) this.events.shift();
    this.emit("event", message);
  }
}

const isOver = (subtask) => ["succeeded", "failed", "cancelled", "skipped", "superseded"].includes(subtask.state);

/** The key with the most unfinished subtasks, if one has several. */
function longestOf(lanes) {
  const length = (lane) => lane.queue.length - lane.first;
  const [longest] = lanes.toSorted((a, b) => length(b) - length(a));
  return longest && length(longest) > 1 ? { key: longest.key, subtasks: length(longest) } : undefined;
}
