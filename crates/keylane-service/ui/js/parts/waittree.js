// What a job or a subtask waits for, and what that waits for, down to the causes: as a tree of links.

import { get, jobPath } from "../api.js";
import { fill, h } from "../dom.js";
import { count, jobTitle } from "../format.js";
import { icon } from "../icons.js";
import { href } from "../route.js";
import { MAX_NODES, waitTree } from "../waits.js";
import { reasonWord } from "../words.js";
import { button, keyLink, panel, stateBadge } from "./small.js";
import { reasonOf } from "./toast.js";

/**
 * @typedef {import("../waits.js").Waiting} Waiting
 * @typedef {import("../waits.js").WaitNode} WaitNode
 * @typedef {import("../waits.js").WaitEdge} WaitEdge
 */

/**
 * @param {import("../main.js").App} app
 * @param {Waiting} first
 * @param {AbortSignal} signal
 */
export function waitPanel(app, first, signal) {
  const place = h("div", { "aria-live": "polite" });
  const show = button("Show what waits for what", "next", () => load(), { class: "button is-small" });
  const element = panel("What waits for what", { side: show }, place);
  const read = async (/** @type {Waiting} */ of) => {
    const { job, number } = of;
    if (number === undefined) {
      const view = await get(jobPath(job), {}, signal);
      app.model.learn(view);
      return { of, title: jobTitle(view), state: view.state, reasons: view.waiting_because ?? [] };
    }
    const view = await get(`${jobPath(job)}/subtasks/${number}`, {}, signal);
    const title = `${app.model.nameOf(job) ?? jobTitle({ id: job, kind: "job" })} #${number}`;
    return { of, title, state: view.state, reasons: view.waiting_because ? [view.waiting_because] : [] };
  };
  const load = async () => {
    show.disabled = true;
    try {
      const { root, isAll } = await waitTree(first, read);
      const rest = !isAll && h("p", { class: "panel-foot" }, `More than ${count(MAX_NODES)} jobs and subtasks: open one to follow it from there.`);
      fill(place, h("ul", { class: "wait-tree" }, item(root)), rest);
    } catch (error) {
      if (!signal.aborted) fill(place, h("p", { class: "panel-body" }, `It could not be read: ${reasonOf(error)}`));
    }
    show.disabled = false;
  };
  return element;
}

/**
 * @param {WaitNode} node
 * @returns {HTMLElement}
 */
function item({ of: { job, number }, title, state, edges }) {
  const link = href(number === undefined ? ["jobs", job] : ["jobs", job, "subtasks", number]);
  return h(
    "li",
    null,
    h("p", { class: "wait-node" }, h("a", { href: link }, title), " ", stateBadge(state).element),
    edges.length > 0 && h("ul", null, edges.map(reason)),
  );
}

/**
 * @param {WaitEdge} edge
 * @returns {HTMLElement}
 */
function reason({ because, to, isKnown }) {
  const { reason: code, text, key, count: number, job, number: subtask } = because;
  const isLeaf = job === undefined;
  return h(
    "li",
    null,
    h(
      "p",
      { class: isLeaf ? "wait-reason is-cause" : "wait-reason" },
      icon(isLeaf ? "stopped" : "waiting"),
      h("span", null, reasonWord(code)),
      key !== undefined && h("span", null, "key ", keyLink(key)),
      number !== undefined && h("span", { class: "muted" }, `${count(number)} subtasks`),
      isKnown && h("span", { class: "muted" }, `${subtask === undefined ? "this job" : `subtask #${subtask}`} is shown above`),
    ),
    isLeaf && h("p", { class: "because-text" }, text),
    to && h("ul", null, item(to)),
  );
}
