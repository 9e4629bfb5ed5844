// Draws how many slots each job had, as a pile over time, with the same as a table.

import { fitted, redraw, tableToggle } from "../canvas.js";
import { h, refill } from "../dom.js";
import { clock, count, jobTitle } from "../format.js";
import { colourOf, themeColours } from "../lanes/palette.js";
import { empty, jobLink, table } from "../parts/small.js";
import { RULE_NAMES, ruleWord } from "../words.js";
import { HISTORY_MS, jobsOf, pointFromScheduler, pointsFromBars, sharesOf } from "./history.js";

/** @typedef {import("./history.js").Point} Point */

const GUTTER = 50;
const TOP = 8;
/** Below the pile a line for each rule, and the times. */
const RULE_LINE = 13;
const STRIP = RULE_LINE * RULE_NAMES.length + 10;
const TIMES = 20;
const FOOT = STRIP + TIMES;

export class AllocationChart {
  /** @type {Point[]} */
  #points = [];
  #slots = 0;

  /**
   * @param {import("../main.js").App} app
   * @param {AbortSignal} signal
   */
  constructor(app, signal) {
    this.app = app;
    this.canvas = h("canvas", { class: "allocation-canvas", role: "img", "aria-label": "Slots of each job over time" });
    this.legend = h("ul", { class: "legend", "aria-label": "Jobs in the picture" });
    this.twin = h("div");
    this.element = h("div", null, this.legend, this.canvas, this.twin);
    this.toggle = tableToggle([this.canvas], this.twin, () => this.#show());
    redraw(this.canvas, () => this.#draw(), signal);
  }

  /** Values from before the first reading of the scheduler, where the sample is complete. */
  #fillIn() {
    const { slices } = this.app.model;
    const end = this.#points[0]?.at ?? this.app.model.now();
    const from = Math.max(end - HISTORY_MS, slices.knownFrom);
    if (end - from < 2_000 || slices.dropped(from) > 0) return;
    this.#points = [...pointsFromBars(slices.all(), from, end), ...this.#points];
  }

  /** @param {import("../types.js").Scheduler} scheduler */
  add(scheduler) {
    const now = this.app.model.now();
    this.#points.push(pointFromScheduler(scheduler, now));
    this.#fillIn();
    this.#points = this.#points.filter(({ at }) => at >= now - HISTORY_MS - 2_000);
    this.#slots = scheduler.slots;
    this.#show();
  }

  #show() {
    const jobs = jobsOf(this.#points);
    const names = jobs.map((job) => [job, this.#nameOf(job)]);
    refill(this.legend, JSON.stringify(names), () =>
      names.slice(-12).map(([job, name]) => h("li", null, jobLink(job, name))),
    );
    if (!this.twin.hidden) this.#showTable();
    else this.#draw();
  }

  /** @param {string} id */
  #nameOf(id) {
    return this.app.model.nameOf(id) ?? jobTitle({ id, kind: "job" });
  }

  #showTable() {
    const shares = sharesOf(this.#points).filter(({ most }) => most > 0);
    refill(this.twin, JSON.stringify(shares), () => {
      if (shares.length === 0) return empty("No job had a slot");
      const { element, body } = table("Slots of each job, in the last minutes", [
        "Job",
        ">Now",
        ">On average",
        ">At most",
      ]);
      body.append(
        ...shares.map(({ job, now, mean, most }) =>
          h(
            "tr",
            null,
            h("td", null, jobLink(job, this.#nameOf(job))),
            h("td", { class: "number" }, count(now)),
            h("td", { class: "number" }, mean.toFixed(1)),
            h("td", { class: "number" }, count(most)),
          ),
        ),
      );
      return element;
    });
  }

  #draw() {
    const found = fitted(this.canvas);
    if (!found) return;
    const { context, width, height } = found;
    const colours = themeColours(this.element);
    const to = this.#points.at(-1)?.at ?? this.app.model.now();
    const place = {
      x: (/** @type {number} */ at) => GUTTER + ((at - to + HISTORY_MS) / HISTORY_MS) * (width - GUTTER - 8),
      y: (/** @type {number} */ slots) => height - FOOT - (slots / Math.max(1, this.#slots)) * (height - FOOT - TOP),
    };
    this.#drawAxes(context, colours, place, { width, height, to });
    this.#drawPile(context, colours, place);
    this.#drawDecisions(context, colours, place, height);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {import("../lanes/palette.js").Colours} colours
   * @param {{x: (at: number) => number, y: (slots: number) => number}} place
   */
  #drawPile(context, colours, { x, y }) {
    const floor = this.#points.map(() => 0);
    for (const job of jobsOf(this.#points)) {
      context.fillStyle = colours.jobs[colourOf(job)];
      for (const [index, { at, slots }] of this.#points.entries()) {
        const number = slots.get(job) ?? 0;
        if (number === 0) continue;
        const left = Math.round(x(at));
        const next = this.#points[index + 1]?.at ?? at + 1000;
        // A second without a reading stays empty: the chart does not guess.
        const right = Math.round(x(Math.min(next, at + 3_000)));
        if (right > GUTTER) {
          const begin = Math.max(left, GUTTER);
          context.fillRect(
            begin,
            y(floor[index] + number),
            right - begin,
            y(floor[index]) - y(floor[index] + number) - 0.6,
          );
        }
        floor[index] += number;
      }
    }
  }

  /**
   * A tick for each slot that was given away, in the line of its rule and the colour of its job.
   * @param {CanvasRenderingContext2D} context
   * @param {import("../lanes/palette.js").Colours} colours
   * @param {{x: (at: number) => number}} place
   * @param {number} height
   */
  #drawDecisions(context, colours, { x }, height) {
    const top = height - TIMES - RULE_LINE * RULE_NAMES.length;
    context.textAlign = "right";
    context.fillStyle = colours.muted;
    for (const [line, rule] of RULE_NAMES.entries())
      context.fillText(ruleWord(rule), GUTTER - 7, top + (line + 0.5) * RULE_LINE);
    for (const bar of this.app.model.slices.all()) {
      const line = RULE_NAMES.indexOf(bar.rule);
      const left = Math.round(x(bar.begin));
      if (line < 0 || left < GUTTER) continue;
      context.fillStyle = colours.jobs[colourOf(bar.job)];
      context.fillRect(left, top + line * RULE_LINE + 2, 1.5, RULE_LINE - 4);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {import("../lanes/palette.js").Colours} colours
   * @param {{x: (at: number) => number, y: (slots: number) => number}} place
   * @param {{width: number, height: number, to: number}} box
   */
  #drawAxes(context, colours, { x, y }, { width, height, to }) {
    context.font = `11px ${colours.font}`;
    context.fillStyle = colours.muted;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const slots of new Set([0, Math.round(this.#slots / 2), this.#slots])) {
      context.fillStyle = colours.muted;
      context.fillText(String(slots), GUTTER - 7, y(slots));
      context.fillStyle = colours.line;
      context.fillRect(GUTTER, Math.round(y(slots)), width - GUTTER - 8, 1);
    }
    context.fillStyle = colours.muted;
    context.textAlign = "center";
    const step = width < 520 ? 60_000 : 30_000;
    for (let at = Math.ceil((to - HISTORY_MS) / step) * step; at <= to; at += step) {
      if (x(at) > GUTTER + 20 && x(at) < width - 26) context.fillText(clock(at), x(at), height - TIMES / 2);
    }
  }
}
