// A job's results so far: in the order of submission, of completion, or of the keys.

import { get, jobPath } from "../api.js";
import { fill, h } from "../dom.js";
import { duration } from "../format.js";
import { pager } from "../parts/page.js";
import { payloadLine } from "../parts/payload.js";
import { ago, button, cell, empty, failure, keyLink, panel, skeleton, stateBadge, table } from "../parts/small.js";
import { href, parseRoute, setQuery } from "../route.js";

/** @typedef {import("../types.js").Outcome} Outcome */

const PAGE = 50;
const ORDERS = [
  ["submit", "As submitted"],
  ["completion", "As completed"],
  ["key", "By key"],
];

/**
 * @param {import("../main.js").View} view
 * @param {import("../types.js").Job} job
 * @param {HTMLElement} body
 */
export function showResultsPart({ signal }, job, body) {
  const place = h("div", null, skeleton(6));
  const pages = pager(() => load());
  const load = async () => {
    try {
      const page = await get(
        `${jobPath(job.id)}/results`,
        { order: order(), cursor: pages.cursor, limit: PAGE },
        signal,
      );
      pages.show(page.next_cursor);
      if (page.items.length === 0) fill(place, empty("No results yet", h("p", null, "Results appear as subtasks end.")));
      else fill(place, resultTable(job.id, page.items));
    } catch (error) {
      if (!signal.aborted) fill(place, failure(/** @type {Error} */ (error), load));
    }
  };
  const choice = orderChoice(() => {
    pages.reset();
    load();
  });
  // A page that is read does not move: new results come when they are asked for.
  const again = button("Reload", "retry", () => load(), { class: "button is-small" });
  fill(body, panel("Results", { side: [choice, again] }, place, pages.element));
  load();
}

const order = () => parseRoute(location.hash).query.get("order") ?? "submit";

/** @param {() => void} changed */
function orderChoice(changed) {
  const buttons = ORDERS.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === order()), onclick: () => choose(value) }, text),
  );
  const choose = (/** @type {string} */ value) => {
    setQuery({ order: value === "submit" ? "" : value });
    for (const [index, one] of buttons.entries()) one.setAttribute("aria-pressed", String(ORDERS[index][0] === value));
    changed();
  };
  return h("div", { class: "segments", role: "group", "aria-label": "Order of the results" }, buttons);
}

/**
 * @param {string} job
 * @param {Outcome[]} items
 */
function resultTable(job, items) {
  const { element, body } = table(
    "Results",
    ["Subtask", "Key", "Outcome", ">Attempt", ">Duration", "Ended", "Result"],
    "is-cards",
  );
  body.append(...items.map((item) => resultRow(job, item)));
  return element;
}

/**
 * @param {string} job
 * @param {Outcome} outcome
 */
function resultRow(job, { number, keys = [], outcome, attempt, started_at, ended_at, result, error }) {
  const took = started_at ? duration(Date.parse(ended_at) - Date.parse(started_at)) : "–";
  return h(
    "tr",
    null,
    h("td", null, h("a", { href: href(["jobs", job, "subtasks", number]) }, `#${number}`)),
    cell(
      "Key",
      "",
      keys.length === 0
        ? h("span", { class: "muted" }, "none")
        : h(
            "span",
            null,
            keys.flatMap((key) => [keyLink(key), " "]),
          ),
    ),
    cell("Outcome", "", stateBadge(outcome).element),
    cell("Attempt", "number", attempt),
    cell("Duration", "number", took),
    cell("Ended", "", ago(ended_at)),
    h(
      "td",
      { class: "grow mono one-line", "data-label": "Result" },
      error ? h("span", { class: "error-text" }, error) : payloadLine(result),
    ),
  );
}
