// Remembers how many slots each job had, second by second: asked from the scheduler, and before that worked out
// from what ran. Nothing here draws.

/**
 * @typedef {import("../lanes/slices.js").Bar} Bar
 * @typedef {{at: number, slots: Map<string, number>}} Point
 */

export const HISTORY_MS = 3 * 60_000;
const STEP_MS = 1_000;

/**
 * Slots of each job at whole seconds, computed from the bars. Seconds with an incomplete sample are left out.
 * @param {Bar[]} bars
 * @param {number} from
 * @param {number} to
 * @returns {Point[]}
 */
export function pointsFromBars(bars, from, to) {
  const first = bars.reduce((least, bar) => Math.min(least, bar.begin), Infinity);
  /** @type {Point[]} */
  const points = [];
  for (let at = Math.ceil(Math.max(from, first) / STEP_MS) * STEP_MS; at < to; at += STEP_MS)
    points.push({ at, slots: new Map() });
  for (const bar of bars) {
    const begin = points.length === 0 ? 0 : Math.max(0, Math.ceil((bar.begin - points[0].at) / STEP_MS));
    for (let index = begin; index < points.length && points[index].at < (bar.end ?? Infinity); index += 1) {
      const { slots } = points[index];
      slots.set(bar.job, (slots.get(bar.job) ?? 0) + 1);
    }
  }
  return points;
}

/**
 * What the scheduler says now.
 * @param {import("../types.js").Scheduler} scheduler
 * @param {number} at
 * @returns {Point}
 */
export function pointFromScheduler({ running }, at) {
  /** @type {Map<string, number>} */
  const slots = new Map();
  for (const { job } of running) slots.set(job, (slots.get(job) ?? 0) + 1);
  return { at, slots };
}

/**
 * Jobs in the order in which they first had a slot: a job stays where it is in the pile.
 * @param {Point[]} points
 */
export function jobsOf(points) {
  const jobs = new Set(points.flatMap(({ slots }) => [...slots.keys()]));
  return [...jobs];
}

/**
 * For each job: its slots now, its most, and its average over all points.
 * @param {Point[]} points
 */
export function sharesOf(points) {
  return jobsOf(points).map((job) => {
    const numbers = points.map(({ slots }) => slots.get(job) ?? 0);
    return {
      job,
      now: numbers[numbers.length - 1],
      most: Math.max(...numbers),
      mean: numbers.reduce((sum, one) => sum + one, 0) / numbers.length,
    };
  });
}
