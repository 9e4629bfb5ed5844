// Puts bars into rows, and finds the one at a point or beside another. Nothing here draws.

/**
 * @typedef {import("./slices.js").Bar} Bar
 *
 * @typedef {object} Row
 * @property {string} label
 * @property {string} name the label in a sentence
 * @property {Bar[]} bars by their begin
 */

/**
 * A row for each slot, also for those that did nothing.
 * @param {Bar[]} bars
 * @param {number} slots
 * @returns {Row[]}
 */
export function rowsBySlot(bars, slots) {
  const highest = bars.reduce((most, bar) => Math.max(most, bar.slot + 1), slots);
  const rows = Array.from({ length: highest }, (_, slot) => row(`slot ${slot}`, `slot ${slot}`));
  for (const bar of bars) rows[bar.slot].bars.push(bar);
  return rows.map(sorted);
}

/**
 * A row for each key of a job, those with the most time first. A bar with two keys is in both rows.
 * @param {Bar[]} bars
 * @param {string} job
 * @returns {Row[]}
 */
export function rowsByKey(bars, job) {
  /** @type {Map<string, Row & {work: number}>} */
  const rows = new Map();
  for (const bar of bars) {
    if (bar.job !== job) continue;
    for (const key of bar.keys.length > 0 ? bar.keys : [""]) {
      const found = rows.get(key) ?? {
        ...row(key || "no key", key ? `key ${key}` : "subtasks without a key"),
        work: 0,
      };
      found.bars.push(bar);
      found.work += (bar.end ?? Date.now()) - bar.begin;
      rows.set(key, found);
    }
  }
  return [...rows.values()].sort((a, b) => b.work - a.work || (a.label < b.label ? -1 : 1)).map(sorted);
}

/**
 * @param {string} label
 * @param {string} name
 * @returns {Row}
 */
const row = (label, name) => ({ label, name, bars: [] });

/**
 * @param {Row} row
 * @returns {Row}
 */
function sorted({ label, name, bars }) {
  return { label, name, bars: bars.sort((a, b) => a.begin - b.begin) };
}

/**
 * The first bar that begins after `time`.
 * @param {Bar[]} bars
 * @param {number} time
 */
export function firstAfter(bars, time) {
  let low = 0;
  let high = bars.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars[middle].begin > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * The bar at a time, or the nearest one that is less than `slack` away.
 * @param {Bar[]} bars
 * @param {number} time
 * @param {number} now
 * @param {number} [slack]
 */
export function barAt(bars, time, now, slack = 0) {
  const next = firstAfter(bars, time);
  const before = bars[next - 1];
  const after = bars[next];
  const past = before ? time - (before.end ?? now) : Infinity;
  const ahead = after ? after.begin - time : Infinity;
  // Inside of a bar it is less than no time away.
  if (Math.min(past, ahead) > slack) return null;
  return past <= ahead ? before : after;
}

/**
 * What stands idle at a time in a row: from when to when.
 * @param {Bar[]} bars
 * @param {number} time
 * @param {number} from
 * @param {number} now
 */
export function gapAt(bars, time, from, now) {
  const next = firstAfter(bars, time);
  const begin = Math.max(bars[next - 1]?.end ?? from, from);
  return { begin, end: bars[next]?.begin ?? now };
}

/**
 * Where a step with an arrow key leads; null if there is nothing.
 * @param {Row[]} rows
 * @param {{row: number, bar: Bar} | null} focus
 * @param {"left" | "right" | "up" | "down" | "home" | "end"} step
 * @param {{from: number, to: number}} span visible time range
 * @returns {{row: number, bar: Bar} | null}
 */
export function stepFrom(rows, focus, step, span) {
  if (!focus || !rows[focus.row]) return newest(rows, span);
  const { bars } = rows[focus.row];
  const seen = bars.filter((bar) => (bar.end ?? span.to) >= span.from && bar.begin <= span.to);
  const at = seen.findIndex((bar) => bar.id === focus.bar.id);
  if (step === "up" || step === "down") return nearest(rows, focus, step === "up" ? -1 : 1, span);
  const target = { left: at < 0 ? 0 : at - 1, right: at + 1, home: 0, end: seen.length - 1 }[step];
  const bar = seen[Math.max(0, Math.min(target, seen.length - 1))];
  return bar ? { row: focus.row, bar } : newest(rows, span);
}

/**
 * @param {Row[]} rows
 * @param {{from: number, to: number}} span
 */
function newest(rows, { from, to }) {
  for (const [row, { bars }] of rows.entries()) {
    const bar = bars.findLast((one) => one.begin <= to && (one.end ?? to) >= from);
    if (bar) return { row, bar };
  }
  return null;
}

/**
 * The bar nearest in time in the next row that has one.
 * @param {Row[]} rows
 * @param {{row: number, bar: Bar}} focus
 * @param {number} direction
 * @param {{from: number, to: number}} span
 */
function nearest(rows, focus, direction, { from, to }) {
  const middle = (Math.max(focus.bar.begin, from) + Math.min(focus.bar.end ?? to, to)) / 2;
  for (let row = focus.row + direction; row >= 0 && row < rows.length; row += direction) {
    const bar = barAt(rows[row].bars, middle, to, Infinity);
    if (bar && (bar.end ?? to) >= from) return { row, bar };
  }
  return focus;
}

/**
 * Whether two bars have a key in common.
 * @param {Bar} a
 * @param {Bar} b
 */
export function sharesKey(a, b) {
  return a.id === b.id || a.keys.some((key) => b.keys.includes(key));
}
