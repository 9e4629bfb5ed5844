// A job's claim to spare workers, which can be changed while it goes on.

import { call, jobPath } from "../api.js";
import { h } from "../dom.js";
import { jobTitle } from "../format.js";
import { isFinal } from "../words.js";
import { attempt } from "./toast.js";

/** @typedef {import("../types.js").Job} Job */

/**
 * @param {import("../main.js").App} app
 * @param {Job} first
 * @param {() => void} changed
 */
export function weightField(app, first, changed) {
  let known = first.weight;
  const input = h("input", {
    type: "number",
    class: "input",
    min: 1,
    max: 1_000_000,
    value: first.weight,
    "aria-label": "Weight",
  });
  const set = h("button", { class: "button is-small", hidden: true }, "Set");
  const element = h("form", { class: "actions", onsubmit: save }, input, set);
  input.style.width = "88px";
  input.addEventListener("input", () => {
    set.hidden = Number(input.value) === known;
  });
  /** @param {Event} event */
  async function save(event) {
    event.preventDefault();
    const weight = Number(input.value);
    const isDone = await attempt(
      () => call(jobPath(first.id), { method: "PATCH", body: { weight } }),
      `The weight of ${jobTitle(first)} is ${weight}`,
    );
    if (!isDone) return;
    known = weight;
    set.hidden = true;
    changed();
  }
  const update = (/** @type {Job} */ job) => {
    if (set.hidden && document.activeElement !== input) input.value = String(job.weight);
    known = job.weight;
    input.disabled = isFinal(job.state) || (app.version?.read_only ?? false);
  };
  return { element, update };
}
