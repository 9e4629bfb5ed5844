// Says numbers, times and names in few characters, in one way everywhere.

/** A thin space, which does not break: 100 000 000 stays one number. */
const THIN = "\u202f";

/**
 * A whole number with its thousands apart.
 * @param {number} value
 */
export function count(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, THIN);
}

/**
 * A number in at most four characters: 950, 1.2k, 34k, 5.6M.
 * @param {number} value
 */
export function short(value) {
  const steps = /** @type {const} */ ([
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ]);
  // What would be rounded to 1000 of a unit is 1 of the next.
  const step = steps.find(([size]) => Math.abs(value) >= size * 0.9995);
  if (!step) return String(Math.abs(value) < 10 ? Math.round(value * 10) / 10 : Math.round(value));
  const scaled = value / step[0];
  return `${Math.abs(scaled) < 9.95 ? Math.round(scaled * 10) / 10 : Math.round(scaled)}${step[1]}`;
}

/**
 * @param {number} part from 0 to 1
 */
export function percent(part) {
  // 99.97 % is not done, and 0.02 % is not nothing.
  if (part > 0 && part < 0.001) return "<0.1%";
  if (part > 0.999 && part < 1) return ">99.9%";
  const value = part * 100;
  return `${value < 10 && value > 0 ? value.toFixed(1) : value.toFixed(0)}%`;
}

/**
 * @param {number} value
 */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/**
 * How long something took, with two units at most: 340 ms, 4.2 s, 3 min 5 s, 2 h 10 min, 5 d 3 h.
 * @param {number} ms
 */
export function duration(ms) {
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9_950 ? 1 : 0)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return pair(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 24 * 60) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(minutes / 60);
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

/**
 * @param {number} large
 * @param {string} largeUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function pair(large, largeUnit, small, smallUnit) {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/**
 * How long ago, in one unit: for columns that are read at a glance.
 * @param {number} ms
 */
export function age(ms) {
  if (ms < 1000) return "now";
  const units = /** @type {const} */ ([
    [86_400_000, "d"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1000, "s"],
  ]);
  const unit = units.find(([size]) => ms >= size) ?? units[3];
  return `${Math.floor(ms / unit[0])} ${unit[1]}`;
}

/**
 * The time of the day, or the date if that is another one.
 * @param {string | number} at
 * @param {number} [now]
 */
export function clock(at, now = Date.now()) {
  const time = new Date(at);
  const two = (/** @type {number} */ part) => String(part).padStart(2, "0");
  const day = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  if (new Date(now).toDateString() === time.toDateString()) return day;
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${day}`;
}

/**
 * The end of a job's id, which tells jobs of one day apart: its beginning is the time.
 * @param {string} id
 */
export function shortId(id) {
  return id.replace(/^job_/, "").slice(-6);
}

/**
 * Display name of a job, or its shortened id.
 * @param {{id: string, name?: string, kind: string}} job
 */
export function jobTitle(job) {
  return job.name || `${job.kind} ${shortId(job.id)}`;
}

/**
 * The newer of two answers about one job: an older one may come later, by another way.
 * @template {{version: number}} T
 * @param {T | undefined} known
 * @param {T} come
 */
export function newer(known, come) {
  return known && known.version > come.version ? known : come;
}

/**
 * The order of lists of jobs. Those of one millisecond are told apart by the number at the end of their ids.
 * @param {{id: string, created_at: string}} a
 * @param {{id: string, created_at: string}} b
 */
export function newestFirst(a, b) {
  const place = (/** @type {{id: string, created_at: string}} */ { id, created_at }) => created_at + id.slice(-10);
  return place(a) === place(b) ? 0 : place(a) < place(b) ? 1 : -1;
}

/**
 * `1 subtask`, `2 subtasks`.
 * @param {number} number
 * @param {string} noun
 */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
