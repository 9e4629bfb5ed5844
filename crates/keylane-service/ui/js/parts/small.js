// The small things that every view is made of.

import { h, refill, setText } from "../dom.js";
import { age, count, duration, percent, plural } from "../format.js";
import { icon } from "../icons.js";
import { colourOf } from "../lanes/palette.js";
import { href } from "../route.js";
import { stateHelp, stateWord } from "../words.js";

/** @typedef {import("../types.js").Counts} Counts */

/** How something is: a drawing, a word and a colour. */
export function stateBadge(/** @type {string} */ state = "") {
  const badge = h("span", { class: "state" });
  const update = (/** @type {string} */ now) => {
    if (now === "") return;
    refill(badge, now, () => [icon(now), stateWord(now)]);
    badge.dataset.state = now;
    badge.title = stateHelp(now);
  };
  update(state);
  return { element: badge, update };
}

/** The colour that a job has in the lanes. */
export function swatch(/** @type {string} */ job) {
  const mark = h("span", { class: "swatch", "aria-hidden": "true" });
  mark.dataset.colour = String(colourOf(job));
  return mark;
}

/** How long ago something was, kept true by {@link keepAges}. */
export function ago(/** @type {string | undefined} */ at = undefined, suffix = " ago") {
  const time = h("time", { class: "ago" });
  time.dataset.suffix = suffix;
  setAgo(time, at);
  return time;
}

/**
 * @param {HTMLTimeElement} time
 * @param {string | undefined} at
 */
export function setAgo(time, at) {
  if (!at) return setText(time, "–");
  if (time.dateTime !== at) {
    time.dateTime = at;
    time.title = new Date(at).toLocaleString();
  }
  const passed = Date.now() + clockOffset() - Date.parse(at);
  setText(
    time,
    passed < 1000 && time.dataset.suffix ? "just now" : age(Math.max(passed, 0)) + (time.dataset.suffix ?? ""),
  );
}

let clockOffset = () => 0;

/**
 * @param {() => number} offset of the server's clock
 */
export function keepAges(offset) {
  clockOffset = offset;
  setInterval(() => {
    if (document.hidden) return;
    for (const time of document.querySelectorAll("time.ago")) {
      if (time instanceof HTMLTimeElement && time.dateTime) setAgo(time, time.dateTime);
    }
  }, 1000);
}

const PARTS = /** @type {const} */ ([
  "succeeded",
  "failed",
  "cancelled",
  "superseded",
  "running",
  "ready",
  "backing_off",
  "waiting",
]);

/** How much of a job is done, as a bar of its parts and in words. */
export function progressBar() {
  const parts = PARTS.map((part) => h("span", { class: "progress-part", "data-state": part }));
  const bar = h("span", { class: "progress", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, parts);
  /**
   * @param {Counts} counts
   * @param {number} progress
   * @param {string} name
   */
  const update = (counts, progress, name) => {
    for (const [index, part] of PARTS.entries()) {
      parts[index].style.flexGrow = String(counts[part]);
      parts[index].hidden = counts[part] === 0;
    }
    bar.setAttribute("aria-valuenow", String(Math.floor(progress * 100)));
    bar.setAttribute("aria-label", `Progress of ${name}`);
    bar.setAttribute("aria-valuetext", progressText(counts, progress));
  };
  return { element: bar, update };
}

/**
 * @param {Counts} counts
 * @param {number} progress
 */
export function progressText(counts, progress) {
  return `${percent(progress)}, ${count(endedOf(counts))} of ${plural(counts.total, "subtask")} ended`;
}

/**
 * Number of subtasks that have ended.
 * @param {Counts} counts
 */
export const endedOf = ({ succeeded, failed, cancelled, superseded }) => succeeded + failed + cancelled + superseded;

/** A link to a job, with its colour and its name. */
export function jobLink(/** @type {string} */ id, /** @type {string} */ text) {
  return h("a", { href: href(["jobs", id]), class: "job-link" }, swatch(id), h("span", null, text));
}

/** A link to a key. */
export function keyLink(/** @type {string} */ key) {
  return h("a", { href: href(["keys", key]), class: "mono key-link" }, key);
}

/**
 * Links to the keys of a subtask, or `none`.
 * @param {{keys?: string[], shared_keys?: string[]}} of
 * @param {string} [none]
 */
export function keyLinks({ keys = [], shared_keys: shared = [] }, none = "") {
  if (keys.length + shared.length === 0) return none ? [h("span", { class: "muted" }, none)] : [];
  return [
    ...keys.flatMap((key) => [keyLink(key), " "]),
    ...shared.flatMap((key) => [keyLink(key), h("span", { class: "muted" }, " shared"), " "]),
  ];
}

/**
 * A button with a drawing and a word.
 * @param {string} word
 * @param {string} drawing
 * @param {() => unknown} press
 * @param {Record<string, unknown>} [more]
 */
export function button(word, drawing, press, more = {}) {
  return h(
    "button",
    { type: "button", class: "button", onclick: press, ...more },
    icon(drawing),
    h("span", null, word),
  );
}

/** Grey bars where something will be: not a zero, which would be a claim. */
export function skeleton(rows = 4) {
  return h(
    "div",
    { class: "skeleton", role: "status" },
    h("span", { class: "visually-hidden" }, "Loading"),
    Array.from({ length: rows }, () => h("span", { class: "skeleton-row" })),
  );
}

/**
 * Nothing is here: why, and what to do.
 * @param {string} title
 * @param {import("../dom.js").Child | import("../dom.js").Child[]} [body]
 */
export function empty(title, body = null) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), body);
}

/** What went wrong where something should be, and a way to try again. */
export function failure(/** @type {Error} */ error, /** @type {(() => unknown) | null} */ again = null) {
  return h(
    "div",
    { class: "empty is-failure", role: "alert" },
    h("p", { class: "empty-title" }, icon("failed"), " Request failed"),
    h("p", null, error.message),
    again && button("Try again", "retry", again),
  );
}

/**
 * Names rows of the store that a list cannot show.
 * @param {HTMLElement} place
 * @param {import("../types.js").DamagedRow[]} [rows]
 */
export function notShown(place, rows = []) {
  place.hidden = rows.length === 0;
  place.replaceChildren(...rows.map((row) => h("p", null, icon("failed"), " Not shown: ", row.problem)));
}

/**
 * A headed part of a page.
 * @param {string} title
 * @param {{level?: 2 | 3, side?: import("../dom.js").Child | import("../dom.js").Child[], class?: string}} options
 * @param {...(import("../dom.js").Child | import("../dom.js").Child[])} children
 */
export function panel(title, { level = 2, side = null, class: name = "" }, ...children) {
  const heading = h(level === 2 ? "h2" : "h3", { class: "panel-title" }, title);
  return h(
    "section",
    { class: `panel ${name}` },
    h("div", { class: "panel-head" }, heading, side && h("div", { class: "panel-side" }, side)),
    ...children,
  );
}

/**
 * A table that can be scrolled sideways where there is no room for it. A column whose name begins with `>` has
 * numbers, which stand at its right.
 * @param {string} label
 * @param {string[]} columns
 * @param {string} [name]
 */
export function table(label, columns, name = "") {
  const body = h("tbody");
  const heads = columns.map((column) => {
    const isNumber = column.startsWith(">");
    return h("th", { scope: "col", class: isNumber && "number" }, isNumber ? column.slice(1) : column);
  });
  const all = h(
    "table",
    { class: `table ${name}` },
    h("caption", { class: "visually-hidden" }, label),
    h("thead", null, h("tr", null, heads)),
    body,
  );
  const element = h("div", { class: "table-scroll", role: "group", "aria-label": label, tabindex: 0 }, all);
  return { element, body };
}

/**
 * A cell that says on a narrow screen what it is about.
 * @param {string} label
 * @param {string} name
 * @param {...import("../dom.js").Child} children
 */
export function cell(label, name, ...children) {
  return h("td", { class: name, "data-label": label }, ...children);
}

/** What takes how long from now. */
export function eta(/** @type {number | undefined} */ ms) {
  return ms === undefined ? "–" : duration(ms);
}
