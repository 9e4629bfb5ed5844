// Subtasks that failed for one reason.

import { h } from "../dom.js";
import { plural } from "../format.js";
import { icon } from "../icons.js";
import { href } from "../route.js";
import { payloadLine } from "./payload.js";
import { ago, cell, keyLink, table } from "./small.js";

const SHOWN = 5;

/**
 * @param {string} job
 * @param {{error: string, items: import("../types.js").Subtask[]}} group
 */
export function failedGroup(job, { error, items }) {
  const { element, body } = table(
    `Subtasks that failed with: ${error}`,
    ["Subtask", "Key", ">Attempts", "Ended", "Payload"],
    "is-cards",
  );
  const show = (/** @type {number} */ number) =>
    body.append(...items.slice(body.children.length, number).map((item) => row(job, item)));
  show(SHOWN);
  const more = h(
    "button",
    { type: "button", class: "button is-small", onclick: () => (show(items.length), more.remove()) },
    `Show all ${items.length}`,
  );
  return h(
    "div",
    { class: "failed-group" },
    h(
      "p",
      { class: "panel-head" },
      h("span", { class: "error-text" }, icon("failed"), " ", error),
      h("span", { class: "panel-side hint" }, plural(items.length, "subtask")),
    ),
    element,
    items.length > SHOWN && h("div", { class: "panel-foot" }, more),
  );
}

/**
 * @param {string} job
 * @param {import("../types.js").Subtask} subtask
 */
function row(job, { number, keys, attempts, outcome, payload }) {
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
    cell("Attempts", "number", attempts),
    cell("Ended", "", ago(outcome?.ended_at)),
    h("td", { class: "grow mono one-line", "data-label": "Payload" }, payloadLine(payload)),
  );
}
