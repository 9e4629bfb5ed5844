// A job's subtasks, by state and by key.

import { get, jobPath } from "../api.js";
import { fill, h, KeyedList, refill, setText } from "../dom.js";
import { later, soon } from "../pace.js";
import { pager } from "../parts/page.js";
import { payloadLine } from "../parts/payload.js";
import { cell, empty, failure, keyLinks, panel, skeleton, stateBadge, table } from "../parts/small.js";
import { href, parseRoute, setQuery } from "../route.js";
import { reasonWord, stateWord, SUBTASK_STATES } from "../words.js";

/** @typedef {import("../types.js").Subtask} Subtask */

const PAGE = 50;

/**
 * @param {import("../main.js").View} view
 * @param {import("../types.js").Job} job
 * @param {HTMLElement} body
 */
export function showSubtasksPart({ app, signal }, job, body) {
  const { element, body: rows } = table(
    "Subtasks",
    ["Subtask", "Key", "State", ">Attempts", "Why it waits, or how it ended", "Payload"],
    "is-cards",
  );
  const list = new KeyedList(
    rows,
    (/** @type {Subtask} */ subtask) => String(subtask.number),
    (subtask) => subtaskRow(job.id, subtask),
  );
  const place = h("div", null, skeleton(6));
  const pages = pager(() => load());
  const load = async () => {
    const { query } = parseRoute(location.hash);
    const filters = { state: query.get("state"), key: query.get("key") };
    try {
      const page = await get(`${jobPath(job.id)}/subtasks`, { ...filters, cursor: pages.cursor, limit: PAGE }, signal);
      pages.show(page.next_cursor);
      if (page.items.length === 0)
        fill(place, empty(filters.state || filters.key ? "No subtask matches" : "This job has no subtasks yet"));
      else if (!element.isConnected) fill(place, element);
      list.show(page.items);
    } catch (error) {
      if (!signal.aborted) fill(place, failure(/** @type {Error} */ (error), load));
    }
  };
  const again = () => {
    pages.reset();
    load();
  };
  fill(body, panel("Subtasks", { side: filters(again) }, place, pages.element));
  app.live.on(
    "*",
    soon(() => !signal.aborted && load(), 700),
    signal,
  );
  load();
}

/** @param {() => void} changed */
function filters(changed) {
  const { query } = parseRoute(location.hash);
  const state = h(
    "select",
    { class: "input", "aria-label": "State" },
    h("option", { value: "" }, "All states"),
    SUBTASK_STATES.map((one) => h("option", { value: one }, stateWord(one))),
  );
  state.value = query.get("state") ?? "";
  const key = h("input", {
    type: "search",
    class: "input",
    placeholder: "Key",
    "aria-label": "Key",
    value: query.get("key") ?? "",
  });
  const set = (/** @type {string} */ name, /** @type {string} */ value) => {
    setQuery({ [name]: value });
    changed();
  };
  state.addEventListener("change", () => set("state", state.value));
  key.addEventListener(
    "input",
    later(() => set("key", key.value), 250),
  );
  return h("div", { class: "lanes-tools" }, key, state);
}

/**
 * @param {string} job
 * @param {Subtask} first
 */
function subtaskRow(job, first) {
  const state = stateBadge();
  const attempts = h("td", { class: "number", "data-label": "Attempts" });
  const why = h("td", { class: "grow", "data-label": "Why" });
  const element = h(
    "tr",
    null,
    h("td", null, h("a", { href: href(["jobs", job, "subtasks", first.number]) }, `#${first.number}`)),
    cell(
      "Key",
      "",
      h("span", null, keyLinks(first, "none")),
    ),
    cell("State", "", state.element),
    attempts,
    why,
    h("td", { class: "grow mono one-line", "data-label": "Payload" }, payloadLine(first.payload)),
  );
  const update = (/** @type {Subtask} */ subtask) => {
    state.update(subtask.state);
    setText(attempts, subtask.attempts);
    refill(why, JSON.stringify([subtask.waiting_because, subtask.outcome?.error]), () => whyText(subtask));
  };
  return { element, update };
}

/** @param {Subtask} subtask */
function whyText({ waiting_because: because, outcome }) {
  if (outcome?.error) return h("span", { class: "error-text" }, outcome.error);
  if (!because) return null;
  const place = because.position === undefined ? "" : `, position ${because.position}`;
  return h("span", { title: because.text }, `${reasonWord(because.reason)}${place}`);
}
