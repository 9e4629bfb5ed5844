// Periods of the past that the page can show, and the address of one.

const HOUR = 3_600_000;

/** Lengths by the word in the address. @type {Record<string, {ms: number, label: string}>} */
export const SPANS = {
  "1h": { ms: HOUR, label: "1 hour" },
  "6h": { ms: 6 * HOUR, label: "6 hours" },
  "24h": { ms: 24 * HOUR, label: "24 hours" },
  "7d": { ms: 7 * 24 * HOUR, label: "7 days" },
  "30d": { ms: 30 * 24 * HOUR, label: "30 days" },
};

/**
 * @typedef {object} Period
 * @property {string} span a key of {@link SPANS}
 * @property {number | null} to null for a period that ends now and moves on
 */

/**
 * @param {URLSearchParams} query
 * @returns {Period}
 */
export function periodOf(query) {
  const span = query.get("span") ?? "";
  const to = Date.parse(query.get("to") ?? "");
  return { span: span in SPANS ? span : "1h", to: Number.isNaN(to) ? null : to };
}

/**
 * @param {Period} period
 * @returns {Record<string, string | undefined>}
 */
export function queryOf({ span, to }) {
  return { span: span === "1h" ? undefined : span, to: to === null ? undefined : new Date(to).toISOString() };
}

/**
 * The period half a span earlier or later. One that would reach beyond `now` ends now.
 * @param {Period} period
 * @param {-1 | 1} direction
 * @param {number} now
 * @returns {Period}
 */
export function moved({ span, to }, direction, now) {
  const end = (to ?? now) + (direction * SPANS[span].ms) / 2;
  return { span, to: end >= now ? null : end };
}

/**
 * The distance of the marks on an axis of time: at most `most` of them.
 * @param {number} span
 * @param {number} most
 */
export function stepOf(span, most) {
  const minute = 60_000;
  const steps = [1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200].map((minutes) => minutes * minute);
  return steps.find((step) => span / step <= most) ?? 14_400 * minute;
}

/**
 * A time as the axis shows it: the date at midnight, and otherwise the time of the day.
 * @param {number} at
 * @param {number} span
 */
export function mark(at, span) {
  const time = new Date(at);
  const two = (/** @type {number} */ part) => String(part).padStart(2, "0");
  const date = `${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const day = `${two(time.getHours())}:${two(time.getMinutes())}`;
  if (day === "00:00") return date;
  return span > 2 * 24 * HOUR ? `${date} ${day}` : day;
}

/**
 * The times of marks in whole steps of local time.
 * @param {number} from
 * @param {number} to
 * @param {number} step
 */
export function marks(from, to, step) {
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const times = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) times.push(at);
  return times;
}
