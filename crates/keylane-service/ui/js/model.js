// What all parts of the page share of what the stream says: the newest summary, the rate, the server's clock, and
// the slices of the last minutes.

import { get, jobPath } from "./api.js";
import { Slices } from "./lanes/slices.js";

/**
 * @typedef {import("./types.js").Summary} Summary
 * @typedef {import("./types.js").Timeline} Timeline
 * @typedef {{at: number, ended: number, busy: number}} Sample
 */

const KEPT_SAMPLES = 120;
const MOST_ASKED = 4;

export class Model {
  /** @type {Summary | null} */
  summary = null;
  /** @type {Sample[]} */
  samples = [];
  slices = new Slices();
  /** The server's clock less this machine's, in milliseconds. */
  clockOffset = 0;
  #clockKnown = false;
  /** How far the timeline is known. @type {number | undefined} */
  #next;
  /** @type {Map<string, string>} */
  #names = new Map();
  /** Jobs that were asked for their names. @type {Set<string>} */
  #asked = new Set();
  #asking = 0;

  /** @param {import("./live.js").Live} live */
  constructor(live) {
    this.live = live;
    live.on("summary", (event) => event.summary && this.#takeSummary(event.summary));
    live.on("timeline", (event) => event.timeline && this.#takeTimeline(event.timeline));
    live.on("*", (event) => event.job && this.learn(event.job));
    live.on("reset", () => this.load());
    live.onOpen(() => this.#catchUp());
  }

  /** State before the first message of the stream. */
  async load() {
    const [summary, timeline] = await Promise.allSettled([get("v1/summary"), get("v1/timeline")]);
    if (timeline.status === "fulfilled") {
      this.slices.clear();
      this.#takeTimeline(timeline.value);
    }
    if (summary.status === "fulfilled") this.#takeSummary(summary.value);
    if (summary.status === "fulfilled") this.#tell();
  }

  /** What ran while there was no stream; what comes twice is kept once. */
  async #catchUp() {
    try {
      this.#takeTimeline(await get("v1/timeline", { after: this.#next }));
    } catch {
      // The stream goes on without it: the picture has a hole, and nothing else.
    }
  }

  /** Now, as the server sees it. */
  now() {
    return Date.now() + this.clockOffset;
  }

  /** How many subtasks ended in a second lately; null while that is not known. */
  rate() {
    const last = this.samples.at(-1);
    const first = last && this.samples.find((sample) => last.at - sample.at <= 5_500);
    if (!last || !first || last.at - first.at < 500) return null;
    return ((last.ended - first.ended) / (last.at - first.at)) * 1000;
  }

  /** @param {{id: string, name?: string, kind: string}} job */
  learn(job) {
    this.#names.set(job.id, job.name || job.kind);
  }

  /**
   * What people call a job. If it has not been seen, it is asked for, and known by the next time.
   * @param {string} id
   */
  nameOf(id) {
    const name = this.#names.get(id);
    if (name === undefined && id !== "") this.#ask(id);
    return name ?? null;
  }

  /**
   * Each job once, and few at a time.
   * @param {string} id
   */
  async #ask(id) {
    if (this.#asked.has(id) || this.#asking >= MOST_ASKED || this.live.connection === "lost") return;
    this.#asked.add(id);
    this.#asking += 1;
    try {
      this.learn(await get(jobPath(id)));
    } catch {
      // It may have been deleted; its id has to do.
    } finally {
      this.#asking -= 1;
    }
  }

  /** @param {Summary} summary */
  #takeSummary(summary) {
    const at = Date.parse(summary.at);
    // A message is late by some time and never early: the least delay is nearest to the truth.
    const offset = at - Date.now();
    if (!this.#clockKnown || offset > this.clockOffset || this.clockOffset - offset > 5_000) this.clockOffset = offset;
    this.#clockKnown = true;
    const { succeeded_total: succeeded, failed_total: failed, cancelled_total: cancelled } = summary;
    const ended = succeeded + failed + cancelled + summary.superseded_total;
    const last = this.samples.at(-1);
    // The totals begin anew with the server.
    if (last && (ended < last.ended || at < last.at)) this.samples = [];
    if (!last || at > last.at) this.samples.push({ at, ended, busy: summary.busy });
    if (this.samples.length > KEPT_SAMPLES) this.samples.shift();
    this.summary = summary;
  }

  /** @param {Timeline} timeline */
  #takeTimeline(timeline) {
    this.#next = timeline.next;
    this.slices.add(timeline, this.now());
  }

  /** @type {Set<() => void>} */
  #watchers = new Set();

  /**
   * Told when a summary has come by another way than the stream.
   * @param {() => void} watcher
   * @param {AbortSignal} signal
   */
  onLoad(watcher, signal) {
    this.#watchers.add(watcher);
    signal.addEventListener("abort", () => this.#watchers.delete(watcher));
  }

  #tell() {
    for (const watcher of [...this.#watchers]) watcher();
  }
}
