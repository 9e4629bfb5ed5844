// Log of the commands of operators, the newest first.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { shortId } from "../format.js";
import { pageHead, pager } from "../parts/page.js";
import { ago, button, cell, empty, failure, jobLink, keyLink, skeleton, table } from "../parts/small.js";

/** @typedef {import("../types.js").AuditEntry} AuditEntry */

const PAGE = 50;
const COLUMNS = ["Time", "Token", "Command", "Target", "Outcome", "Reason"];
/** Words of the outcomes. @type {Record<string, string>} */
const OUTCOMES = { done: "Done", unchanged: "Unchanged", refused: "Refused", damaged: "Damaged entry" };

/** @param {import("../main.js").View} view */
export function showAudit({ root, signal, title }) {
  title("Audit log");
  const place = h("div", null, skeleton(8));
  const list = table("Commands of operators", COLUMNS, "is-cards");
  const pages = pager(() => load());
  const who = field("who", "Token name");
  const what = field("what", "Command, such as job.cancel");
  const load = async () => {
    try {
      const filters = { who: who.value.trim() || undefined, what: what.value.trim() || undefined };
      const page = await get("v1/audit", { ...filters, cursor: pages.cursor, limit: PAGE }, signal);
      if (signal.aborted) return;
      pages.show(page.next_cursor);
      list.body.replaceChildren(...page.items.map(row));
      if (page.items.length > 0) fill(place, list.element);
      else fill(place, empty("No entries", h("p", null, "Commands that change jobs, keys or schedules appear here.")));
    } catch (error) {
      if (!signal.aborted) fill(place, failure(/** @type {Error} */ (error), load));
    }
  };
  const find = h("form", { class: "filters", role: "search" }, who, what, button("Show", "search", () => {}, { type: "submit" }));
  find.addEventListener("submit", (event) => {
    event.preventDefault();
    pages.reset();
    load();
  });
  fill(root, pageHead("Audit log").element, find, h("div", { class: "panel" }, place, pages.element));
  load();
}

/**
 * @param {string} name
 * @param {string} label
 */
function field(name, label) {
  return h("input", { class: "input", name, placeholder: label, "aria-label": label });
}

/** @param {AuditEntry} entry */
function row(entry) {
  const { at, who, from, what, outcome, problem, reason } = entry;
  return h(
    "tr",
    { "data-entry": String(entry.number) },
    cell("Time", "", ago(at)),
    h("td", { class: "grow", "data-label": "Token" }, h("div", null, h("b", null, who), h("span", { class: "sub" }, from ?? ""))),
    cell("Command", "mono", what),
    cell("Target", "", ...targets(entry)),
    cell("Outcome", outcome === "refused" || outcome === "damaged" ? "error-text" : "", OUTCOMES[outcome] ?? outcome, problem ? `: ${problem}` : ""),
    cell("Reason", "", reason ?? "–"),
  );
}

/** @param {AuditEntry} entry */
function targets({ job, key, schedule }) {
  const found = [job && jobLink(job, shortId(job)), key !== undefined && keyLink(key), schedule && h("span", null, schedule)];
  const shown = found.filter((one) => one instanceof HTMLElement);
  return shown.length > 0 ? shown.flatMap((one, index) => (index > 0 ? [" ", one] : [one])) : ["–"];
}
