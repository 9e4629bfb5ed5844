// What the charts of the past show, computed from samples. Nothing here draws.

import { jobTitle } from "../format.js";

/**
 * @typedef {import("../types.js").HistorySample} Sample
 *
 * @typedef {object} Series
 * @property {string} name
 * @property {string} label
 * @property {string} colour name of a colour in the style sheet
 * @property {(number | undefined)[]} values by sample
 */

/** Jobs with a colour of their own; all others are one series. */
const SHOWN_JOBS = 9;

/** @type {[keyof Sample["waiting"], string, string][]} */
const WAITS = [
  ["slot", "For a slot", "--job-0"],
  ["key", "For a key", "--job-1"],
  ["kind", "Limit of the kind", "--job-2"],
  ["tenant", "Limit of the tenant", "--job-6"],
  ["backoff", "For the next attempt", "--job-5"],
  ["scheduled", "For the start time", "--job-4"],
  ["paused", "Paused", "--job-3"],
  ["stopped", "Stopped after a failure", "--job-7"],
  ["entering", "Not in the order yet", "--job-9"],
];

/**
 * Running subtasks by job: those with the most work in the period, and all others together.
 * @param {Sample[]} samples
 * @returns {Series[]}
 */
export function jobSeries(samples) {
  /** @type {Map<string, number>} */
  const work = new Map();
  for (const { jobs = [] } of samples) for (const { job, busy } of jobs) work.set(job, (work.get(job) ?? 0) + busy);
  const names = namesIn(samples);
  const shown = [...work].sort((a, b) => b[1] - a[1]).slice(0, SHOWN_JOBS);
  const values = (/** @type {string} */ id) =>
    samples.map(({ jobs = [] }) => jobs.find(({ job }) => job === id)?.busy ?? 0);
  const series = shown.map(([id], index) => ({
    name: id,
    label: names.get(id) ?? id,
    colour: `--job-${index}`,
    values: values(id),
  }));
  const others = samples.map(({ busy }, index) =>
    Math.max(0, busy - series.reduce((sum, { values }) => sum + values[index], 0)),
  );
  // Averages are rounded, so that their sum may differ a little.
  const hasOthers = others.some((value) => value > 0.1);
  return hasOthers ? [...series, { name: "others", label: "Other jobs", colour: "--job-9", values: others }] : series;
}

/**
 * The names of the jobs in samples.
 * @param {Sample[]} samples
 * @returns {Map<string, string>}
 */
export function namesIn(samples) {
  const jobs = samples.flatMap(({ jobs = [] }) => jobs);
  return new Map(jobs.map(({ job, kind, name }) => [job, jobTitle({ id: job, kind, name })]));
}

/**
 * Ended subtasks a second, and retried attempts.
 * @param {Sample[]} samples
 * @param {number} intervalMs
 * @returns {Series[]}
 */
export function rateSeries(samples, intervalMs) {
  const rate = (/** @type {"succeeded" | "failed" | "cancelled" | "retried"} */ name) =>
    samples.map((sample) => sample[name] / (intervalMs / 1000));
  return [
    { name: "succeeded", label: "Succeeded", colour: "--bar-succeeded", values: rate("succeeded") },
    { name: "failed", label: "Failed for good", colour: "--bar-failed", values: rate("failed") },
    { name: "cancelled", label: "Cancelled, skipped or superseded", colour: "--bar-cancelled", values: rate("cancelled") },
    { name: "retried", label: "Retried attempts", colour: "--bar-backing", values: rate("retried") },
  ];
}

/**
 * Waiting subtasks by reason; only reasons that some had.
 * @param {Sample[]} samples
 * @returns {Series[]}
 */
export function waitSeries(samples) {
  const all = WAITS.map(([name, label, colour]) => ({
    name,
    label,
    colour,
    values: samples.map(({ waiting }) => waiting[name]),
  }));
  return all.filter(({ values }) => values.some((value) => value > 0));
}

/**
 * The highest pile.
 * @param {Series[]} series
 */
export function highest(series) {
  const length = series[0]?.values.length ?? 0;
  let most = 0;
  for (let index = 0; index < length; index += 1)
    most = Math.max(most, series.reduce((sum, { values }) => sum + (values[index] ?? 0), 0));
  return most;
}

/**
 * Average and maximum of each series.
 * @param {Series[]} series
 */
export function summarise(series) {
  return series.map(({ name, label, values }) => {
    const known = values.filter((value) => value !== undefined);
    return {
      name,
      label,
      mean: known.reduce((sum, value) => sum + value, 0) / Math.max(1, known.length),
      most: Math.max(0, ...known),
    };
  });
}

/**
 * A round number above `value` for the top of an axis.
 * @param {number} value
 */
export function roundUp(value) {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((factor) => factor * unit >= value) ?? 10;
  return step * unit;
}
