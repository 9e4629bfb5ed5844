// How slots are shared: over time by job, and decision by decision with the rule that took it.

import { get } from "../api.js";
import { AllocationChart } from "../allocation/chart.js";
import { every, fill, h, KeyedList, refill, setText } from "../dom.js";
import { clock, count, jobTitle, plural } from "../format.js";
import { pageHead } from "../parts/page.js";
import { ago, empty, failure, jobLink, keyLinks, panel, setAgo, skeleton, table } from "../parts/small.js";
import { href } from "../route.js";
import { RULE_NAMES, ruleHelp, ruleWord } from "../words.js";

/**
 * @typedef {import("../types.js").Scheduler} Scheduler
 * @typedef {import("../types.js").Decision} Decision
 * @typedef {import("../types.js").RunningSubtask} RunningSubtask
 */

const ASK_EVERY_MS = 1_000;
const SHOWN_DECISIONS = 60;

/** @param {import("../main.js").View} view */
export function showAllocation({ app, root, signal, title }) {
  title("Allocation");
  const chart = new AllocationChart(app, signal);
  const words = h("span", { class: "hint" });
  const running = runningTable(app);
  const decisions = decisionTable(app);
  const rules = h("dl", { class: "rules" });
  const runningPlace = h("div", null, skeleton());
  const decisionPlace = h("div", null, skeleton());
  const load = async () => {
    if (app.live.isPaused || app.live.connection === "lost") return;
    try {
      /** @type {Scheduler} */
      const now = await get("v1/scheduler", {}, signal);
      chart.add(now);
      setText(
        words,
        `${count(now.busy)} of ${plural(now.slots, "slot")} busy, ${count(now.active)} of ${plural(now.jobs, "job")} active`,
      );
      showOr(runningPlace, running, now.running, "Nothing is running");
      showOr(decisionPlace, decisions, now.decisions.slice(-SHOWN_DECISIONS).reverse(), "No decision yet");
      showRules(rules, now.decisions);
    } catch (error) {
      if (!signal.aborted && !running.element.isConnected)
        fill(runningPlace, failure(/** @type {Error} */ (error), load));
    }
  };
  fill(
    root,
    pageHead("Allocation", { beside: [words] }).element,
    h(
      "div",
      { class: "stack" },
      panel("Slots of each job, and the rule of each decision", { side: chart.toggle }, chart.element),
      panel("Decisions by rule", {}, rules),
      h("div", { class: "columns" }, panel("Running subtasks", {}, runningPlace), panel("Last decisions", {}, decisionPlace)),
    ),
  );
  every(signal, ASK_EVERY_MS, load);
}

/**
 * @template T
 * @param {HTMLElement} place
 * @param {{element: HTMLElement, show: (items: T[]) => void}} shown
 * @param {T[]} items
 * @param {string} nothing
 */
function showOr(place, shown, items, nothing) {
  if (items.length === 0) return refill(place, nothing, () => empty(nothing));
  refill(place, "table", () => shown.element);
  shown.show(items);
}

/**
 * @param {HTMLElement} place
 * @param {Decision[]} decisions
 */
function showRules(place, decisions) {
  /** @type {Map<string, number>} */
  const numbers = new Map(RULE_NAMES.map((rule) => [rule, 0]));
  for (const { rule } of decisions) numbers.set(rule, (numbers.get(rule) ?? 0) + 1);
  refill(place, JSON.stringify([...numbers]), () =>
    [...numbers].map(([rule, number]) =>
      h(
        "div",
        null,
        h("dt", null, ruleWord(rule), h("span", { class: "number" }, count(number))),
        h("dd", null, ruleHelp(rule)),
      ),
    ),
  );
}

/** @param {import("../main.js").App} app */
function nameOf(app, /** @type {string} */ id) {
  return app.model.nameOf(id) ?? jobTitle({ id, kind: "job" });
}

/** @param {import("../main.js").App} app */
function decisionTable(app) {
  const { element, body } = table("The last decisions, newest first", [">Time", "Job", "Rule"]);
  /** Decisions have no name: the same time, job and rule may come twice. @type {WeakMap<Decision, string>} */
  const ids = new WeakMap();
  const list = new KeyedList(
    body,
    (/** @type {Decision} */ decision) => ids.get(decision) ?? "",
    (first) => {
      const row = h(
        "tr",
        null,
        h("td", { class: "number" }, clock(first.at)),
        h("td", null, jobLink(first.job, nameOf(app, first.job))),
        h("td", { title: ruleHelp(first.rule) }, ruleWord(first.rule)),
      );
      return { element: row, update: () => {} };
    },
  );
  const show = (/** @type {Decision[]} */ decisions) => {
    /** @type {Map<string, number>} */
    const seen = new Map();
    for (const decision of decisions.toReversed()) {
      const name = `${decision.at}/${decision.job}/${decision.rule}`;
      seen.set(name, (seen.get(name) ?? 0) + 1);
      ids.set(decision, `${name}/${seen.get(name)}`);
    }
    list.show(decisions);
  };
  return { element, show };
}

/** @param {import("../main.js").App} app */
function runningTable(app) {
  const { element, body } = table("Running subtasks", [">Slot", "Subtask", "Key", ">For", ">Attempt"], "is-cards");
  const list = new KeyedList(
    body,
    (/** @type {RunningSubtask} */ one) => `${one.slot}/${one.job}/${one.number}`,
    (first) => {
      const since = ago(first.since, "");
      const link = jobLink(first.job, `${nameOf(app, first.job)} #${first.number}`);
      link.href = href(["jobs", first.job, "subtasks", first.number]);
      const row = h(
        "tr",
        null,
        h("td", { class: "number", "data-label": "Slot" }, first.slot),
        h(
          "td",
          { class: "grow", "data-label": "Subtask" },
          h("span", null, link, first.worker && h("span", { class: "sub" }, `worker ${first.worker}`)),
        ),
        h(
          "td",
          { "data-label": "Key" },
          h("span", null, keyLinks(first)),
        ),
        h("td", { class: "number", "data-label": "For" }, since),
        h("td", { class: "number", "data-label": "Attempt" }, first.attempt),
      );
      return { element: row, update: (/** @type {RunningSubtask} */ one) => setAgo(since, one.since) };
    },
  );
  return {
    element,
    show: (/** @type {RunningSubtask[]} */ items) => list.show(items.toSorted((a, b) => a.slot - b.slot)),
  };
}
