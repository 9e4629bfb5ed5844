// One subtask: its state, reason for waiting, payload, result, logs of its attempts, and actions while it is the head of
// a key.

import { get, jobPath, keyPath } from "../api.js";
import { every, fill, h, refill } from "../dom.js";
import { duration, jobTitle } from "../format.js";
import { actionBar, headActions, retrySubtask } from "../parts/actions.js";
import { becauseList } from "../parts/because.js";
import { attemptLogs } from "../parts/log.js";
import { pageHead } from "../parts/page.js";
import { payload } from "../parts/payload.js";
import { ago, failure, keyLinks, panel, skeleton, stateBadge } from "../parts/small.js";
import { href } from "../route.js";
import { isFinal } from "../words.js";

/** @typedef {import("../types.js").Subtask} Subtask */
/** @typedef {import("../types.js").AttemptLog} AttemptLog */

const ASK_EVERY_MS = 2_000;

/** Maximum number of keys that are asked for their head. */
const MAX_KEYS = 8;

/** @param {import("../main.js").View} view */
export function showSubtask(view) {
  const { app, root, path, signal, title } = view;
  const [job, , number] = path;
  const name = app.model.nameOf(job) ?? jobTitle({ id: job, kind: "job" });
  title(`${name} #${number}`);
  const state = stateBadge();
  const bar = actionBar({
    isReadOnly: () => app.version?.read_only ?? false,
    after: () => {
      isOver = false;
      load();
    },
    about: `of subtask #${number}`,
  });
  const head = pageHead(`Subtask #${number}`, {
    crumb: [h("a", { href: href(["jobs"]) }, "Jobs"), " / ", h("a", { href: href(["jobs", job]) }, name), " / "],
    beside: [state.element],
    actions: bar.element,
  });
  const body = h("div", { class: "stack" }, panel("Subtask", {}, skeleton()));
  fill(root, head.element, body);
  const at = `${jobPath(job)}/subtasks/${encodeURIComponent(number)}`;
  let isOver = false;
  const load = async () => {
    if (isOver || app.live.isPaused || app.live.connection === "lost") return;
    try {
      const subtask = await get(at, {}, signal);
      // Asked for afterwards, so that of an attempt that is over nothing is missing.
      const logs = (await get(`${at}/logs`, {}, signal)).items;
      isOver = isFinal(subtask.state) || ["skipped", "superseded"].includes(subtask.state);
      state.update(subtask.state);
      bar.update(app.version?.read_only ? [] : await actionsOn(subtask, job, signal));
      refill(body, JSON.stringify([subtask, logs]), () => parts(app, subtask, logs));
    } catch (error) {
      if (!signal.aborted && !("shown" in body)) fill(body, failure(/** @type {Error} */ (error), load));
    }
  };
  app.live.on(
    "reset",
    () => {
      isOver = false;
      load();
    },
    signal,
  );
  every(signal, ASK_EVERY_MS, load);
}

/**
 * Actions on a subtask: a retry once its job is over, or those on the head of one of its keys. Others wait for the head of
 * a key, and have none.
 * @param {Subtask} subtask
 * @param {string} job
 * @param {AbortSignal} signal
 * @returns {Promise<import("../parts/actions.js").Action[]>}
 */
async function actionsOn(subtask, job, signal) {
  const { keys, number, state } = subtask;
  if (["failed", "cancelled", "skipped"].includes(state)) {
    const view = await get(jobPath(job), {}, signal);
    const run = () => retrySubtask(job, subtask);
    return isFinal(view.state) ? [{ word: "Retry…", drawing: "retry", run }] : [];
  }
  if (["running", "succeeded", "superseded"].includes(state)) return [];
  for (const key of keys.slice(0, MAX_KEYS)) {
    // A key without unfinished subtasks by now is not found.
    const view = await get(keyPath(key), {}, signal).catch(() => undefined);
    if (view?.head?.job === job && view.head.number === number) return headActions(view);
  }
  return [];
}

/**
 * @param {import("../main.js").App} app
 * @param {Subtask} subtask
 * @param {AttemptLog[]} logs
 */
function parts(app, { keys, shared_keys: shared = [], barrier = false, latest = false, attempts, max_attempts: most, payload: given, progress, outcome, waiting_because: because }, logs) {
  const by = outcome?.superseded_by;
  const took = outcome?.started_at && duration(Date.parse(outcome.ended_at) - Date.parse(outcome.started_at));
  /** @type {[string, import("../dom.js").Child | import("../dom.js").Child[] | undefined][]} */
  const rows = [
    [keys.length + shared.length === 1 ? "Key" : "Keys", keyLinks({ keys, shared_keys: shared }, "none")],
    ["Barrier", barrier ? "after all earlier subtasks of the job, and before all later ones" : undefined],
    ["Latest", latest ? "replaces the one of its key that has not started" : undefined],
    ["Superseded by", by && h("a", { href: href(["jobs", by.job, "subtasks", String(by.number)]) }, `subtask #${by.number} of ${app.model.nameOf(by.job) ?? by.job}`)],
    ["Attempts", `${attempts} of ${most}`],
    ["Progress", progress === undefined ? undefined : `${Math.floor(progress * 100)} %`],
    ["Started", outcome?.started_at && ago(outcome.started_at)],
    ["Ended", outcome && ago(outcome.ended_at)],
    ["Duration", took],
    ["Error", outcome?.error && h("span", { class: "error-text" }, outcome.error)],
  ];
  const facts = rows
    .filter((row) => row[1] !== undefined && row[1] !== "")
    .flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]);
  return [
    because ? panel("Why it waits", {}, becauseList([because], app.model)) : null,
    panel("Details", {}, h("dl", { class: "facts" }, facts)),
    h("section", { class: "panel", "aria-label": "Payload" }, payload(given, "Payload")),
    outcome && outcome.result !== undefined
      ? h("section", { class: "panel", "aria-label": "Result" }, payload(outcome.result, "Result"))
      : null,
    ...attemptLogs(logs),
  ];
}
