// Keeps what ran in the last minutes, by slot, and forgets the oldest first: by age, and by number.

/**
 * @typedef {import("../types.js").Timeline} Timeline
 *
 * @typedef {object} Bar
 * @property {string} id its subtask, its attempt and its begin
 * @property {number} slot
 * @property {string} job
 * @property {number} number
 * @property {string[]} keys all keys
 * @property {string[]} shared those that others may share
 * @property {number} attempt
 * @property {number} begin in milliseconds since 1970, by the server's clock
 * @property {number | null} end null while it runs
 * @property {string | undefined} outcome
 * @property {string} rule
 */

export const KEPT_MS = 5 * 60_000;
/** Maximum number of bars: drawing takes some milliseconds, and the bars take some 10 MB. */
const KEPT_BARS = 40_000;

export class Slices {
  /** What has ended, in the order in which that became known. @type {Bar[]} */
  #ended = [];
  /** Ids of what has ended: what comes twice, by the first answer and by the stream, is kept once. @type {Set<string>} */
  #known = new Set();
  /** @type {Map<string, Bar>} */
  #running = new Map();
  /** When slices were missing: for a picture to say that its gaps may be none. @type {{at: number, dropped: number}[]} */
  #gaps = [];
  /** Since when it is known what ran: before that, a gap says nothing. */
  knownFrom = Infinity;
  /** It grows with each change. */
  version = 0;

  clear() {
    this.#ended = [];
    this.#known.clear();
    this.#running.clear();
    this.#gaps = [];
    this.knownFrom = Infinity;
    this.version += 1;
  }

  /**
   * @param {Timeline} timeline
   * @param {number} now
   */
  add(timeline, now) {
    this.#running.clear();
    if (this.knownFrom === Infinity) this.knownFrom = now;
    for (const slice of timeline.slices) this.#put(slice);
    if (timeline.dropped > 0) this.#gaps.push({ at: now, dropped: timeline.dropped });
    this.#forget(now - KEPT_MS);
    this.version += 1;
  }

  /** @param {import("../types.js").Slice} slice */
  #put(slice) {
    const bar = barOf(slice);
    if (this.#known.has(bar.id)) return;
    this.knownFrom = Math.min(this.knownFrom, bar.begin);
    if (bar.end === null) {
      this.#running.set(bar.id, bar);
    } else {
      this.#known.add(bar.id);
      this.#ended.push(bar);
    }
  }

  /** @param {number} before */
  #forget(before) {
    let first = Math.max(0, this.#ended.length - KEPT_BARS);
    while (first < this.#ended.length && /** @type {number} */ (this.#ended[first].end) < before) first += 1;
    for (const bar of this.#ended.splice(0, first)) {
      this.#known.delete(bar.id);
      this.knownFrom = Math.max(this.knownFrom, bar.begin);
    }
    this.#gaps = this.#gaps.filter((gap) => gap.at >= before);
  }

  /** Everything that is kept, what runs last. */
  all() {
    return [...this.#ended, ...this.#running.values()];
  }

  /**
   * How many are known to be missing since then.
   * @param {number} since
   */
  dropped(since) {
    return this.#gaps.reduce((sum, gap) => sum + (gap.at >= since ? gap.dropped : 0), 0);
  }
}

/**
 * @param {import("../types.js").Slice} slice
 * @returns {Bar}
 */
export function barOf({ slot, job, number, keys = [], shared_keys: shared = [], attempt, begin, end, outcome, rule }) {
  return {
    // A job that is tried again may count its attempts anew: the time tells them apart.
    id: `${job}/${number}/${attempt}/${begin}`,
    slot,
    job,
    number,
    keys: [...keys, ...shared],
    shared,
    attempt,
    begin: Date.parse(begin),
    end: end === undefined ? null : Date.parse(end),
    outcome,
    rule,
  };
}
