// Draws series as a pile over time, with a legend, the values under the pointer, and the same as a table.

import { fitted, redraw, tableToggle } from "../canvas.js";
import { h, refill, setText } from "../dom.js";
import { clock, short } from "../format.js";
import { themeColours } from "../lanes/palette.js";
import { empty, table } from "../parts/small.js";
import { mark, marks, stepOf } from "./periods.js";
import { highest, roundUp, summarise } from "./series.js";

/** @typedef {import("./series.js").Series} Series */

const GUTTER = 50;
const TOP = 10;
const FOOT = 20;
const MARGIN = 8;

/**
 * @typedef {object} Content
 * @property {number[]} times begin of each sample
 * @property {Series[]} series
 * @property {number} from
 * @property {number} to
 * @property {number} intervalMs
 * @property {number} [top] end of the axis of values; the highest pile by default
 */

export class StackChart {
  /** @type {Content | null} */
  #content = null;

  /**
   * @param {{title: string, nothing: string, labelOf?: (series: {name: string, label: string}) => import("../dom.js").Child}} words
   * @param {AbortSignal} signal
   */
  constructor({ title, nothing, labelOf = ({ label }) => label }, signal) {
    this.title = title;
    this.nothing = nothing;
    this.labelOf = labelOf;
    this.canvas = h("canvas", { class: "history-canvas", role: "img", "aria-label": title });
    this.legend = h("ul", { class: "legend", "aria-label": `Parts of ${title}` });
    this.info = h("p", { class: "lanes-info" });
    this.twin = h("div");
    this.element = h("div", null, this.legend, this.canvas, this.info, this.twin);
    this.toggle = tableToggle([this.canvas, this.info], this.twin, () => this.#draw());
    this.canvas.addEventListener("pointermove", ({ offsetX }) => this.#sayAt(offsetX));
    this.canvas.addEventListener("pointerleave", () => this.#sayAt(null));
    redraw(this.canvas, () => this.#draw(), signal);
  }

  /** @param {Content} content */
  show(content) {
    this.#content = content;
    refill(this.legend, JSON.stringify(content.series.map(({ name, label, colour }) => [name, label, colour])), () =>
      content.series.map((one) =>
        h("li", null, tinted(one.colour), this.labelOf(one)),
      ),
    );
    this.#sayAt(null);
    this.#showTable();
    this.#draw();
  }

  #showTable() {
    const rows = summarise(this.#content?.series ?? []).filter(({ most }) => most > 0);
    refill(this.twin, JSON.stringify(rows), () => {
      if (rows.length === 0) return empty(this.nothing);
      const { element, body } = table(this.title, ["", ">On average", ">At most"]);
      body.append(
        ...rows.map((row) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, this.labelOf(row)),
            h("td", { class: "number" }, short(row.mean)),
            h("td", { class: "number" }, short(row.most)),
          ),
        ),
      );
      return element;
    });
  }

  /** Says the values at a place, or that there are none. @param {number | null} x */
  #sayAt(x) {
    const content = this.#content;
    if (!content) return;
    const { times, series, from, to, intervalMs } = content;
    if (times.length === 0) return setText(this.info, this.nothing);
    if (x === null) return setText(this.info, "Point at the chart for the values of a moment.");
    const at = from + ((x - GUTTER) / (this.canvas.clientWidth - GUTTER - MARGIN)) * (to - from);
    const index = times.findLastIndex((time) => time <= at);
    if (index < 0 || at >= times[index] + intervalMs)
      return setText(this.info, `${clock(at)}: no data. The server did not run, or this time is not kept.`);
    const parts = series.filter(({ values }) => (values[index] ?? 0) > 0);
    const text = parts.map(({ label, values }) => `${label} ${short(values[index] ?? 0)}`).join(", ");
    setText(this.info, `${clock(times[index])}: ${text || "none"}`);
  }

  #draw() {
    const content = this.#content;
    const found = content && fitted(this.canvas);
    if (!found) return;
    const { context, width, height } = found;
    const { from, to, series, top: wanted } = content;
    const top = wanted ?? roundUp(highest(series));
    const x = (/** @type {number} */ at) => GUTTER + ((at - from) / (to - from)) * (width - GUTTER - MARGIN);
    const y = (/** @type {number} */ value) => height - FOOT - (value / top) * (height - FOOT - TOP);
    this.#drawAxes(context, content, { x, y, top, width, height });
    this.#drawPile(context, content, { x, y });
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Content} content
   * @param {{x: (at: number) => number, y: (value: number) => number}} place
   */
  #drawPile(context, { times, series, from, to, intervalMs }, { x, y }) {
    const style = getComputedStyle(this.element);
    const floor = times.map(() => 0);
    for (const { colour, values } of series) {
      context.fillStyle = style.getPropertyValue(colour).trim();
      for (const [index, at] of times.entries()) {
        const value = values[index] ?? 0;
        const left = Math.round(x(Math.max(at, from)));
        const right = Math.max(left + 1, Math.round(x(Math.min(at + intervalMs, to))));
        if (value > 0 && at < to)
          context.fillRect(left, y(floor[index] + value), right - left, y(floor[index]) - y(floor[index] + value));
        floor[index] += value;
      }
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Content} content
   * @param {{x: (at: number) => number, y: (value: number) => number, top: number, width: number, height: number}} place
   */
  #drawAxes(context, { from, to }, { x, y, top, width, height }) {
    const colours = themeColours(this.element);
    context.font = `11px ${colours.font}`;
    context.textBaseline = "middle";
    for (const value of [0, top / 2, top]) {
      context.textAlign = "right";
      context.fillStyle = colours.muted;
      context.fillText(short(value), GUTTER - 7, y(value));
      context.fillStyle = colours.line;
      context.fillRect(GUTTER, Math.round(y(value)), width - GUTTER - MARGIN, 1);
    }
    context.fillStyle = colours.muted;
    context.textAlign = "center";
    for (const at of marks(from, to, stepOf(to - from, Math.max(2, (width - GUTTER) / 90)))) {
      const text = mark(at, to - from);
      if (x(at) > GUTTER + 20 && x(at) < width - 36) context.fillText(text, x(at), height - FOOT / 2);
    }
  }
}

/** @param {string} colour name of a colour in the style sheet */
function tinted(colour) {
  const mark = h("span", { class: "swatch", "aria-hidden": "true" });
  mark.style.background = `var(${colour})`;
  return mark;
}
