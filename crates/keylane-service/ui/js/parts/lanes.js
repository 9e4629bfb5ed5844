// The lanes with what belongs to them: which rows, how much time, the legend, and the same as a table.

import { h, KeyedList, refill, setText } from "../dom.js";
import { clock, count, duration, jobTitle } from "../format.js";
import { icon } from "../icons.js";
import { LaneChart } from "../lanes/chart.js";
import { href } from "../route.js";
import { outcomeWord, ruleWord } from "../words.js";
import { cell, jobLink, keyLinks, panel, table } from "./small.js";

/** @typedef {import("../lanes/slices.js").Bar} Bar */

const SPANS = [10_000, 30_000, 60_000, 300_000];
const MAX_TABLE_ROWS = 100;

/**
 * @param {import("../main.js").View} view
 * @param {{job?: string}} [options] with a job, its keys are the rows
 */
export function lanesPanel({ app, signal }, { job = "" } = {}) {
  const chart = new LaneChart(app.model, signal);
  chart.showKeysOf(job);
  const twin = laneTable(app, chart);
  const legend = h("ul", { class: "legend", "aria-label": "Jobs in the lanes" });
  const note = h("span", { class: "hint" });
  const rows = h("select", { class: "input", "aria-label": "Rows", onchange: () => chart.showKeysOf(rows.value) });
  let isTable = false;
  const toggle = h(
    "button",
    { type: "button", class: "button is-small", "aria-pressed": "false", onclick: () => showTable(!isTable) },
    icon("table"),
    "View as table",
  );
  const showTable = (/** @type {boolean} */ wanted) => {
    isTable = wanted;
    toggle.setAttribute("aria-pressed", String(wanted));
    chart.element.hidden = wanted;
    twin.element.hidden = !wanted;
    update();
  };
  const update = () => {
    if (isTable) twin.show();
    showLegend(app, chart, legend);
    if (!job) showChoices(app, rows);
    const dropped = app.model.slices.dropped(app.model.now() - chart.span);
    setText(note, dropped > 0 ? `A sample: ${count(dropped)} more attempts not shown` : "");
  };
  app.live.on("timeline", update, signal);
  app.model.onLoad(update, signal);
  update();
  const tools = [note, !job && rows, spanButtons(chart), toggle];
  return panel(
    job ? "Lanes of its keys" : "Lanes",
    { side: h("div", { class: "lanes-tools" }, tools), class: "lanes" },
    legend,
    chart.element,
    twin.element,
  );
}

/** @param {LaneChart} chart */
function spanButtons(chart) {
  const buttons = SPANS.map((span) => {
    const one = h("button", { type: "button", "aria-pressed": String(span === chart.span) }, duration(span));
    one.addEventListener("click", () => {
      chart.setSpan(span);
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === one));
    });
    return one;
  });
  return h("div", { class: "segments", role: "group", "aria-label": "Displayed time range" }, buttons);
}

/**
 * @param {import("../main.js").App} app
 * @param {LaneChart} chart
 */
function jobsIn(app, chart) {
  const from = app.model.now() - chart.span;
  /** @type {Map<string, number>} */
  const jobs = new Map();
  for (const bar of app.model.slices.all()) {
    if (bar.end === null || bar.end >= from) jobs.set(bar.job, (jobs.get(bar.job) ?? 0) + 1);
  }
  return [...jobs].sort((a, b) => b[1] - a[1]).map(([job]) => job);
}

/**
 * @param {import("../main.js").App} app
 * @param {LaneChart} chart
 * @param {HTMLElement} legend
 */
function showLegend(app, chart, legend) {
  const jobs = jobsIn(app, chart).slice(0, 10);
  const title = (/** @type {string} */ id) => app.model.nameOf(id) ?? jobTitle({ id, kind: "job" });
  refill(legend, JSON.stringify(jobs.map((job) => [job, title(job)])), () =>
    jobs.map((job) => h("li", null, jobLink(job, title(job)))),
  );
  legend.hidden = jobs.length === 0 || chart.byKeysOf !== "";
}

/**
 * @param {import("../main.js").App} app
 * @param {HTMLSelectElement} rows
 */
function showChoices(app, rows) {
  // A list that is open is not changed under the hand.
  if (document.activeElement === rows) return;
  const chosen = rows.value;
  const jobs = [...new Set(app.model.slices.all().map((bar) => bar.job))].slice(-20);
  if (chosen && !jobs.includes(chosen)) jobs.push(chosen);
  const choices = [
    ["", "Rows: slots"],
    ...jobs.map((job) => [job, `Rows: keys of ${app.model.nameOf(job) ?? jobTitle({ id: job, kind: "job" })}`]),
  ];
  refill(rows, JSON.stringify(choices), () => choices.map(([value, text]) => h("option", { value }, text)));
  rows.value = chosen;
}

/**
 * The same as the picture, newest first.
 * @param {import("../main.js").App} app
 * @param {LaneChart} chart
 */
function laneTable(app, chart) {
  const { element, body } = table("Recent attempts, newest first", [
    ">Slot",
    "Job",
    "Subtask",
    "Key",
    ">Began",
    ">Duration",
    "Outcome",
    "Rule",
  ]);
  element.classList.add("lane-table");
  element.hidden = true;
  const list = new KeyedList(body, (/** @type {Bar} */ bar) => bar.id, makeRow);
  /** @param {Bar} first */
  function makeRow(first) {
    const took = h("td", { class: "number" });
    const ended = h("td");
    const row = h(
      "tr",
      null,
      h("td", { class: "number" }, first.slot),
      h("td", null, jobLink(first.job, app.model.nameOf(first.job) ?? jobTitle({ id: first.job, kind: "job" }))),
      h("td", null, h("a", { href: href(["jobs", first.job, "subtasks", first.number]) }, `#${first.number}`)),
      cell("Key", "", ...keyLinks({ keys: first.keys.filter((key) => !first.shared.includes(key)), shared_keys: first.shared })),
      h("td", { class: "number" }, clock(first.begin)),
      took,
      ended,
      h("td", null, ruleWord(first.rule)),
    );
    return {
      element: row,
      update: (/** @type {Bar} */ bar) => {
        setText(took, duration((bar.end ?? app.model.now()) - bar.begin));
        setText(ended, outcomeWord(bar.outcome));
      },
    };
  }
  const show = () => {
    const from = app.model.now() - chart.span;
    const bars = app.model.slices
      .all()
      .filter((bar) => (bar.end ?? Infinity) >= from && (!chart.byKeysOf || bar.job === chart.byKeysOf));
    list.show(bars.sort((a, b) => b.begin - a.begin).slice(0, MAX_TABLE_ROWS));
  };
  return { element, show };
}
