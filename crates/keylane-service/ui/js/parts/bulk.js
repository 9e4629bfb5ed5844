// Actions on all jobs that a filter finds: first a look at which they are, then one request for each.

import { call, get, jobPath, post } from "../api.js";
import { h } from "../dom.js";
import { count, jobTitle, plural } from "../format.js";
import { confirm } from "./dialog.js";
import { reasonOf, toast } from "./toast.js";

/**
 * @typedef {import("../types.js").Job} Job
 * @typedef {Record<string, string>} Filters
 *
 * @typedef {object} BulkAction
 * @property {string} verb
 * @property {string} drawing
 * @property {string} done what has happened to a job
 * @property {string} effect
 * @property {string[]} states those that a job must have
 * @property {boolean} [isDangerous]
 * @property {(job: Job) => Promise<unknown>} run
 */

/** Number of jobs that one request returns; the server's maximum. */
const PAGE = 1_000;
/** Maximum number of jobs of one action: their requests take minutes. */
const MAX_JOBS = 10_000;
/** Number of requests at a time. */
const AT_ONCE = 8;
/** Number of jobs that are named before the action. */
const NAMED = 8;

/** @type {BulkAction[]} */
const ACTIONS = [
  {
    verb: "Pause",
    drawing: "pause",
    done: "paused",
    effect: "Nothing more of them starts until they are resumed. Running subtasks may end.",
    states: ["scheduled", "queued", "running"],
    run: (job) => post(`${jobPath(job.id)}/pause`, {}),
  },
  {
    verb: "Resume",
    drawing: "play",
    done: "resumed",
    effect: "They continue at their places in the order.",
    states: ["paused"],
    run: (job) => post(`${jobPath(job.id)}/resume`, {}),
  },
  {
    verb: "Retry",
    drawing: "retry",
    done: "retried",
    effect: "Their failed subtasks get all attempts again. Effects of earlier attempts may happen a second time.",
    states: ["failed"],
    run: (job) => post(`${jobPath(job.id)}/retry`, { only: "failed" }),
  },
  {
    verb: "Cancel",
    drawing: "cancel",
    done: "cancelled",
    effect: "Subtasks that have not started will not run. Running ones may end.",
    states: ["scheduled", "queued", "running", "paused"],
    isDangerous: true,
    run: (job) => post(`${jobPath(job.id)}/cancel`, { mode: "graceful", reason: "by the dashboard" }),
  },
  {
    verb: "Delete",
    drawing: "remove",
    done: "deleted",
    effect: "They and all their results are removed from the store. This cannot be undone.",
    states: ["succeeded", "failed", "cancelled"],
    isDangerous: true,
    run: (job) => call(jobPath(job.id), { method: "DELETE" }),
  },
];

/**
 * What can be done to all jobs that these filters find; nothing without a filter.
 * @param {Filters} filters
 * @param {AbortSignal} signal
 * @returns {import("./actions.js").Action[]}
 */
export function bulkActions(filters, signal) {
  if (!Object.values(filters).some(Boolean)) return [];
  const fitting = ACTIONS.filter(({ states }) => !filters.state || states.includes(filters.state));
  return fitting.map((action) => ({
    word: `${action.verb} all…`,
    drawing: action.drawing,
    isDangerous: action.isDangerous,
    run: () => onAll(action, filters, signal),
  }));
}

/**
 * @param {BulkAction} action
 * @param {Filters} filters
 * @param {AbortSignal} signal
 */
async function onAll(action, filters, signal) {
  try {
    const { jobs, isAll } = await matching(action, filters, signal);
    if (jobs.length === 0) {
      toast(`No job that matches can be ${action.done}.`);
      return false;
    }
    if (!(await confirm(question(action, jobs, isAll)))) return false;
    await runAll(action, jobs);
    return true;
  } catch (error) {
    if (!signal.aborted) toast(reasonOf(error), "failed");
    return false;
  }
}

/**
 * The jobs that the filters find now and that the action fits.
 * @param {BulkAction} action
 * @param {Filters} filters
 * @param {AbortSignal} signal
 */
async function matching({ states }, filters, signal) {
  const state = filters.state || states.join(",");
  /** @type {Job[]} */
  const jobs = [];
  /** @type {string | undefined} */
  let cursor;
  do {
    const page = await get("v1/jobs", { ...filters, state, cursor, limit: PAGE }, signal);
    jobs.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && jobs.length < MAX_JOBS);
  return { jobs: jobs.slice(0, MAX_JOBS), isAll: !cursor && jobs.length <= MAX_JOBS };
}

/**
 * @param {BulkAction} action
 * @param {Job[]} jobs
 * @param {boolean} isAll
 * @returns {import("./dialog.js").Question}
 */
function question({ verb, effect, isDangerous }, jobs, isAll) {
  const named = jobs.slice(0, NAMED).map((job) => h("li", null, jobTitle(job)));
  const more = jobs.length - named.length;
  if (more > 0) named.push(h("li", null, `and ${count(more)} more`));
  const part = isAll ? [] : [`Only the newest ${count(MAX_JOBS)} jobs that match: do it again for the others.`];
  return {
    title: `${verb} ${plural(jobs.length, "job")}?`,
    effect: [effect, ...part],
    field: h("ul", { class: "bulk-list", "aria-label": "Jobs" }, named),
    verb: `${verb} ${jobs.length === 1 ? "the job" : `${count(jobs.length)} jobs`}`,
    isDangerous,
  };
}

/**
 * Runs an action on each job, some at a time, and says how it went.
 * @param {Pick<BulkAction, "run" | "done">} action
 * @param {Job[]} jobs
 */
export async function runAll({ run, done }, jobs) {
  const left = [...jobs].reverse();
  /** @type {string[]} */
  const refused = [];
  const worker = async () => {
    for (let job = left.pop(); job; job = left.pop()) {
      try {
        await run(job);
      } catch (error) {
        refused.push(`${jobTitle(job)}: ${reasonOf(error)}`);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  const succeeded = jobs.length - refused.length;
  if (succeeded > 0) toast(`${plural(succeeded, "job")} ${done}`);
  if (refused.length > 0) toast(`${plural(refused.length, "job")} not ${done}; the first: ${refused[0]}`, "failed");
}
