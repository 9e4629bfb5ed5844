// What can be done to jobs and keys: the words of each question, and the call behind it.

import { call, jobPath, keyPath, post } from "../api.js";
import { h, KeyedList } from "../dom.js";
import { parseExact, printExact } from "../exact.js";
import { count, jobTitle, plural } from "../format.js";
import { icon } from "../icons.js";
import { isFinal } from "../words.js";
import { confirm } from "./dialog.js";
import { attempt } from "./toast.js";

/**
 * @typedef {import("../types.js").Job} Job
 * @typedef {import("../types.js").KeyView} KeyView
 * @typedef {{word: string, drawing: string, isDangerous?: boolean, run: () => Promise<boolean>}} Action
 */

/**
 * What can be done to a job as it is.
 * @param {Job} job
 * @returns {Action[]}
 */
export function jobActions(job) {
  const path = jobPath(job.id);
  const title = jobTitle(job);
  const { failed, cancelled } = job.counts;
  /** @type {Action[]} */
  const actions = [];
  if (job.state === "paused") {
    actions.push({
      word: "Resume",
      drawing: "play",
      run: () => attempt(() => post(`${path}/resume`, {}), `${title} continues`),
    });
  } else if (!isFinal(job.state) && job.state !== "cancelling") {
    actions.push({
      word: "Pause",
      drawing: "pause",
      run: () => attempt(() => post(`${path}/pause`, {}), `${title} is paused: running subtasks may end`),
    });
  }
  if (failed > 0) {
    actions.push({ word: "Retry failed…", drawing: "retry", run: () => retryJob(job, "failed", failed) });
  } else if (cancelled > 0 && isFinal(job.state)) {
    actions.push({ word: "Retry cancelled…", drawing: "retry", run: () => retryJob(job, "unsuccessful", cancelled) });
  }
  if (!isFinal(job.state))
    actions.push({ word: "Cancel…", drawing: "cancel", isDangerous: true, run: () => cancelJob(job) });
  else actions.push({ word: "Delete…", drawing: "remove", isDangerous: true, run: () => deleteJob(job) });
  return actions;
}

/**
 * @param {Job} job
 * @param {"failed" | "unsuccessful"} only
 * @param {number} number
 */
export async function retryJob(job, only, number) {
  const sure = await confirm({
    title: `Retry ${plural(number, "subtask")} of ${jobTitle(job)}?`,
    effect: [
      `${number === 1 ? "It gets" : "They get"} all attempts again, behind all subtasks that wait for the same keys by then.`,
      "Effects of earlier attempts may happen a second time.",
    ],
    verb: "Retry",
  });
  return (
    sure &&
    attempt(() => post(`${jobPath(job.id)}/retry`, { only }), `${plural(number, "subtask")} will be retried`)
  );
}

/**
 * Retries one subtask of a finished job, with the payload that is filled in.
 * @param {string} job
 * @param {import("../types.js").Subtask} subtask
 */
export async function retrySubtask(job, { number, payload }) {
  const before = printExact(payload);
  const text = h("textarea", { spellcheck: "false", rows: 8, id: "retry-payload" });
  text.value = before;
  text.addEventListener("input", () => text.setCustomValidity(jsonError(text.value)));
  const sure = await confirm({
    title: `Retry subtask #${number}?`,
    effect: [
      "It gets all attempts again, behind all subtasks that wait for the same keys by then.",
      "Effects of earlier attempts may happen a second time. A changed payload replaces the old one for good.",
    ],
    field: h("label", { class: "field" }, h("span", { class: "field-name" }, "Payload"), text),
    verb: "Retry",
  });
  // As text, so that no digit of its numbers is lost.
  const edited = text.value === before ? "" : `,"payload":${text.value}`;
  const body = `{"subtasks":[{"number":${number}${edited}}]}`;
  return sure && attempt(() => post(`${jobPath(job)}/retry`, body), `Subtask #${number} will be retried`);
}

/** @param {string} text */
function jsonError(text) {
  try {
    parseExact(text);
    return "";
  } catch (error) {
    return `This is not JSON: ${/** @type {Error} */ (error).message}`;
  }
}

/** @param {Job} job */
async function cancelJob(job) {
  const { waiting, ready, backing_off, running } = job.counts;
  const kill = h("input", { type: "checkbox", id: "cancel-kill" });
  const sure = await confirm({
    title: `Cancel ${jobTitle(job)}?`,
    effect: [
      `${plural(waiting + ready + backing_off, "subtask")} will not run. Ended subtasks stay as they are.`,
      running === 0
        ? "None of its subtasks is running."
        : `${count(running)} ${running === 1 ? "subtask is" : "subtasks are"} running, and may end unless you stop ${running === 1 ? "it" : "them"}.`,
    ],
    field: h("label", { class: "check" }, kill, "Stop running subtasks at once"),
    verb: "Cancel the job",
    isDangerous: true,
  });
  const mode = kill.checked ? "kill" : "graceful";
  return (
    sure &&
    attempt(
      () => post(`${jobPath(job.id)}/cancel`, { mode, reason: "by the dashboard" }),
      `Cancelling ${jobTitle(job)}`,
    )
  );
}

/** @param {Job} job */
async function deleteJob(job) {
  const sure = await confirm({
    title: `Delete ${jobTitle(job)}?`,
    effect: [
      `The job, its ${plural(job.counts.total, "subtask")} and all results are removed from the store. This cannot be undone.`,
    ],
    verb: "Delete the job",
    isDangerous: true,
  });
  return sure && attempt(() => call(jobPath(job.id), { method: "DELETE" }), `${jobTitle(job)} is deleted`);
}

/**
 * What can be done to a key as it is.
 * @param {KeyView} view
 * @returns {Action[]}
 */
export function keyActions(view) {
  const path = keyPath(view.key);
  /** @type {Action[]} */
  const actions = [];
  if (view.state === "paused") {
    actions.push({
      word: "Resume",
      drawing: "play",
      run: () => attempt(() => post(`${path}/resume`), `Key ${view.key} continues`),
    });
  } else {
    actions.push({ word: "Pause", drawing: "pause", run: () => pauseKey(view) });
  }
  actions.push(...headActions(view));
  return actions;
}

/**
 * Actions on the head of a key. A running head is left to end.
 * @param {KeyView} view
 * @returns {Action[]}
 */
export function headActions(view) {
  if (!view.head || view.head.state === "running") return [];
  return [
    { word: "Retry head…", drawing: "retry", run: () => retryHead(view) },
    { word: "Skip head…", drawing: "skip", isDangerous: true, run: () => skipHead(view) },
  ];
}

/** @param {KeyView} view */
const behind = (view) => Math.max(0, view.length - 1);

/** @param {KeyView} view */
async function pauseKey(view) {
  const sure = await confirm({
    title: `Pause key ${view.key}?`,
    effect: [
      `Its ${plural(view.length, "unfinished subtask")} will wait until the key is resumed${view.head?.state === "running" ? "; the running one may end" : ""}.`,
      "Other keys are not affected, except subtasks with this key and another one.",
    ],
    verb: "Pause the key",
  });
  return sure && attempt(() => post(`${keyPath(view.key)}/pause`), `Key ${view.key} is paused`);
}

/** @param {KeyView} view */
async function retryHead(view) {
  const sure = await confirm({
    title: `Retry the head of key ${view.key}?`,
    effect: [
      `Subtask #${view.head?.number} is retried now: its next attempt, or its last one again. ${count(behind(view))} behind it wait until it has ended.`,
    ],
    verb: "Retry the head",
  });
  return sure && attempt(() => post(`${keyPath(view.key)}/retry-head`), `Retrying the head of ${view.key}`);
}

/** @param {KeyView} view */
async function skipHead(view) {
  const sure = await confirm({
    title: `Skip the head of key ${view.key}?`,
    effect: [
      `Subtask #${view.head?.number} will not run, and counts as skipped. ${behind(view) === 0 ? "Nothing waits behind it." : `The next of ${count(behind(view))} behind it may begin.`}`,
    ],
    verb: "Skip the head",
    isDangerous: true,
  });
  return sure && attempt(() => post(`${keyPath(view.key)}/skip-head`), `The head of ${view.key} was skipped`);
}

/**
 * Buttons for what can be done now; none on a server that takes no changes. A button that stays keeps its element, and
 * so its focus, also when a dialog that it opened gives that back.
 * @param {{isReadOnly: () => boolean, after: () => unknown, about: string}} options
 */
export function actionBar({ isReadOnly, after, about }) {
  const element = h("div", { class: "actions" });
  const list = new KeyedList(
    element,
    (/** @type {Action} */ action) => action.word,
    (first) => actionButton(first, about, after),
  );
  /** @param {Action[]} actions */
  const update = (actions) => {
    const hadFocus = element.contains(document.activeElement);
    list.show(isReadOnly() ? [] : actions);
    // The pressed button may be gone: focus its replacement.
    const next = element.querySelector("button");
    if (hadFocus && !element.contains(document.activeElement)) next?.focus();
  };
  return { element, update };
}

/**
 * @param {Action} first
 * @param {string} about
 * @param {() => unknown} after
 */
function actionButton({ word, drawing, isDangerous }, about, after) {
  const name = word.replace("…", "");
  const element = h(
    "button",
    {
      type: "button",
      class: `button ${isDangerous ? "is-danger-quiet" : ""}`,
      "aria-label": `${name} ${about}`,
      "data-action": name,
    },
    icon(drawing),
    h("span", null, word),
  );
  let run = async () => false;
  // One press is one change, however often it is pressed. It is not disabled meanwhile: that would lose the focus.
  let isBusy = false;
  element.addEventListener("click", async () => {
    if (isBusy) return;
    isBusy = true;
    if (await run()) after();
    isBusy = false;
  });
  return {
    element,
    update: (/** @type {Action} */ action) => {
      run = action.run;
    },
  };
}
