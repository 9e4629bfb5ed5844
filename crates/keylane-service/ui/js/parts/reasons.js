// Failures of several jobs by reason, with a way to retry those of a reason in all jobs.

import { jobPath, post } from "../api.js";
import { h, refill } from "../dom.js";
import { groupByError } from "../failed.js";
import { count, plural } from "../format.js";
import { icon } from "../icons.js";
import { runAll } from "./bulk.js";
import { confirm } from "./dialog.js";
import { button, cell, panel, table } from "./small.js";

/**
 * @typedef {import("../types.js").Job} Job
 * @typedef {{job: Job, items: import("../types.js").Subtask[], isAll: boolean}} FailedJob
 *
 * @typedef {object} Reason
 * @property {string} error
 * @property {number} subtasks
 * @property {{job: Job, numbers: number[], isAll: boolean}[]} jobs
 */

/**
 * Reasons of all failures, those of most subtasks first.
 * @param {FailedJob[]} failed
 * @returns {Reason[]}
 */
export function reasonsOf(failed) {
  const all = failed.flatMap(({ job, items }) => items.map((item) => ({ ...item, job })));
  return groupByError(all).map(({ error, items }) => {
    const jobs = failed.flatMap(({ job, isAll }) => {
      const numbers = items.filter((item) => item.job === job).map(({ number }) => number);
      return numbers.length === 0 ? [] : [{ job, numbers, isAll: isAll && numbers.length === job.counts.failed }];
    });
    return { error, subtasks: items.length, jobs };
  });
}

/**
 * @param {{isReadOnly: () => boolean, changed: () => void}} options
 */
export function reasonPanel({ isReadOnly, changed }) {
  const place = h("div");
  const element = panel("By reason, over all jobs shown", {}, place);
  element.hidden = true;
  const show = (/** @type {FailedJob[]} */ failed) => {
    // One job shows the same below.
    element.hidden = failed.length < 2;
    const reasons = reasonsOf(failed);
    const state = reasons.map(({ error, jobs }) => [error, jobs.map(({ job, numbers }) => [job.id, job.state, numbers])]);
    refill(place, JSON.stringify([isReadOnly(), state]), () => {
      const { element: list, body } = table(
        "Failures by reason",
        ["Reason", ">Subtasks", ">Jobs", ...(isReadOnly() ? [] : ["Action"])],
        "is-cards",
      );
      body.append(...reasons.map((reason) => row(reason, isReadOnly(), changed)));
      return list;
    });
  };
  return { element, show };
}

/**
 * @param {Reason} reason
 * @param {boolean} isReadOnly
 * @param {() => void} changed
 */
function row(reason, isReadOnly, changed) {
  const { error, subtasks, jobs } = reason;
  const retry = button("Retry…", "retry", async () => (await retryReason(reason)) && changed(), {
    class: "button is-small",
    "aria-label": `Retry all that failed with: ${error}`,
  });
  return h(
    "tr",
    null,
    h("td", { class: "grow" }, h("span", { class: "error-text" }, icon("failed"), " ", error)),
    cell("Subtasks", "number", count(subtasks)),
    cell("Jobs", "number", count(jobs.length)),
    !isReadOnly && h("td", { class: "actions-cell" }, retry),
  );
}

/** @param {Reason} reason */
async function retryReason({ error, subtasks, jobs }) {
  const sure = await confirm({
    title: `Retry ${plural(subtasks, "subtask")} in ${plural(jobs.length, "job")}?`,
    effect: [
      `They failed with: ${error}`,
      "They get all attempts again, behind all subtasks that wait for the same keys by then. Effects of earlier attempts may happen a second time.",
    ],
    verb: `Retry ${plural(subtasks, "subtask")}`,
  });
  if (!sure) return false;
  const bodies = new Map(jobs.map((one) => [one.job.id, bodyOf(one)]));
  const run = (/** @type {Job} */ job) => post(`${jobPath(job.id)}/retry`, bodies.get(job.id));
  await runAll(
    { run, done: "retried" },
    jobs.map(({ job }) => job),
  );
  return true;
}

/**
 * All failed subtasks of a job, or those with this reason. Of a job that has not ended, only all can be retried.
 * @param {Reason["jobs"][number]} one
 */
function bodyOf({ numbers, isAll }) {
  return isAll ? { only: "failed" } : { subtasks: numbers.map((number) => ({ number })) };
}
