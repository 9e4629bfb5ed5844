// Reasons for waiting: cause, position in the lane, blocking subtask, and time.

import { h } from "../dom.js";
import { count, jobTitle, shortId } from "../format.js";
import { icon } from "../icons.js";
import { href } from "../route.js";
import { reasonWord } from "../words.js";
import { ago, keyLink } from "./small.js";

/** @typedef {import("../types.js").Because} Because */

/**
 * @param {Because[]} reasons
 * @param {{nameOf: (id: string) => string | null}} names
 */
export function becauseList(reasons, names) {
  return h(
    "ul",
    { class: "because" },
    reasons.map((because) => h("li", null, one(because, names))),
  );
}

/**
 * @param {Because} because
 * @param {{nameOf: (id: string) => string | null}} names
 */
function one({ reason, text, count: number, key, position, job, number: subtask, since, until }, names) {
  const facts = [
    key !== undefined && h("span", null, "key ", keyLink(key)),
    position !== undefined && h("span", null, `position ${count(position)}`),
    job !== undefined && h("span", null, "behind ", behind(job, subtask, names)),
    since !== undefined && h("span", null, "for ", ago(since, "")),
    until !== undefined && h("span", null, `until ${new Date(until).toLocaleTimeString()}`),
  ];
  return [
    h(
      "p",
      { class: "because-head" },
      icon("waiting"),
      h("strong", null, reasonWord(reason)),
      number !== undefined && h("span", { class: "because-count" }, `${count(number)} of its subtasks`),
    ),
    h("p", { class: "because-text" }, text),
    facts.some(Boolean) && h("p", { class: "because-facts" }, facts),
  ];
}

/**
 * @param {string} job
 * @param {number | undefined} number
 * @param {{nameOf: (id: string) => string | null}} names
 */
function behind(job, number, names) {
  const path = number === undefined ? ["jobs", job] : ["jobs", job, "subtasks", number];
  const name = jobTitle({ id: job, name: names.nameOf(job) ?? "", kind: "job" });
  return h("a", { href: href(path), title: job }, number === undefined ? name : `${name} #${number}`);
}

/** The main reason in few words, for a row of a list. */
export function becauseShort(/** @type {Because[] | undefined} */ reasons) {
  const first = reasons?.[0];
  if (!first) return "";
  const where = first.key === undefined ? "" : ` ${first.key}`;
  return `${reasonWord(first.reason)}${first.reason === "key_order" ? ":" : ""}${where}${first.job && first.reason === "not_admitted" ? ` (after ${shortId(first.job)})` : ""}`;
}
