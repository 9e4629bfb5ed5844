// Draws the longest attempts of a period by slot, with the one under the pointer in words, and all of them as a table.

import { fitted, redraw, tableToggle } from "../canvas.js";
import { h, refill, setText } from "../dom.js";
import { clock, duration, plural } from "../format.js";
import { themeColours } from "../lanes/palette.js";
import { AXIS, paint, timeAt } from "../lanes/paint.js";
import { barAt, rowsBySlot } from "../lanes/rows.js";
import { barOf } from "../lanes/slices.js";
import { empty, jobLink, keyLinks, table } from "../parts/small.js";
import { href } from "../route.js";
import { outcomeWord } from "../words.js";

/** @typedef {import("../lanes/slices.js").Bar} Bar */

const ROW = 16;
/** Maximum number of rows of the chart, and of the table. */
const MAX_ROWS = 48;
const MAX_LISTED = 50;

export class PastLanes {
  /** @type {import("../lanes/rows.js").Row[]} */
  #rows = [];
  /** @type {{from: number, to: number}} */
  #period = { from: 0, to: 1 };
  /** @type {Bar | null} */
  #hovered = null;

  /**
   * @param {(id: string) => string} nameOf
   * @param {AbortSignal} signal
   */
  constructor(nameOf, signal) {
    this.nameOf = nameOf;
    this.canvas = h("canvas", { class: "lanes-canvas past-lanes", role: "img", "aria-label": "Longest attempts by slot" });
    this.info = h("p", { class: "lanes-info" });
    this.twin = h("div");
    this.element = h("div", { class: "lanes-chart" }, this.canvas, this.info, this.twin);
    this.toggle = tableToggle([this.canvas, this.info], this.twin, () => this.#draw());
    this.canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => this.#point(offsetX, offsetY));
    this.canvas.addEventListener("pointerleave", () => this.#point(-1, -1));
    this.canvas.addEventListener("click", () => {
      if (this.#hovered) location.hash = href(["jobs", this.#hovered.job, "subtasks", this.#hovered.number]);
    });
    redraw(this.canvas, () => this.#draw(), signal);
  }

  /**
   * @param {import("../types.js").Slice[]} slices
   * @param {{from: number, to: number}} period
   */
  show(slices, period) {
    const bars = slices.map(barOf);
    this.#period = period;
    this.#hovered = null;
    this.#rows = rowsBySlot(bars, 0).filter((row) => row.bars.length > 0);
    const left = Math.max(0, this.#rows.length - MAX_ROWS);
    this.#rows = this.#rows.slice(0, MAX_ROWS);
    this.canvas.style.height = `${AXIS + Math.max(1, this.#rows.length) * ROW}px`;
    this.hint =
      bars.length === 0
        ? "No attempt has ended in this period, or it is too long ago: attempts are kept for 24 hours."
        : `${plural(bars.length, "attempt")}: the longest of each interval${left > 0 ? `, without ${plural(left, "slot")}` : ""}. Point at one.`;
    this.#say();
    this.#showTable(bars);
    this.#draw();
  }

  /** @param {Bar[]} bars */
  #showTable(bars) {
    const length = (/** @type {Bar} */ bar) => (bar.end ?? bar.begin) - bar.begin;
    const longest = bars.toSorted((a, b) => length(b) - length(a)).slice(0, MAX_LISTED);
    refill(this.twin, JSON.stringify(longest.map(({ id }) => id)), () => {
      if (longest.length === 0) return empty("No attempts");
      const { element, body } = table("The longest attempts", ["Subtask", "Key", ">Began", ">Lasted", "Outcome", ">Slot"]);
      body.append(
        ...longest.map((bar) => {
          const link = jobLink(bar.job, `${this.nameOf(bar.job)} #${bar.number}`);
          link.href = href(["jobs", bar.job, "subtasks", bar.number]);
          return h(
            "tr",
            null,
            h("td", null, link),
            h("td", null, keyLinks({ keys: bar.keys })),
            h("td", { class: "number" }, clock(bar.begin)),
            h("td", { class: "number" }, duration(length(bar))),
            h("td", null, outcomeWord(bar.outcome)),
            h("td", { class: "number" }, bar.slot),
          );
        }),
      );
      return element;
    });
  }

  /** @returns {import("../lanes/paint.js").Scene} */
  #scene() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return {
      ...this.#period,
      rows: this.#rows,
      width,
      height,
      scroll: 0,
      gutter: 58,
      rowHeight: ROW,
      knownFrom: this.#period.from,
      lit: this.#hovered,
      focus: null,
    };
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  #point(x, y) {
    const scene = this.#scene();
    const row = this.#rows[Math.floor((y - AXIS) / ROW)];
    const slack = ((scene.to - scene.from) / Math.max(1, scene.width)) * 3;
    const found = row && x > scene.gutter ? barAt(row.bars, timeAt(scene, x), scene.to, slack) : null;
    if (found === this.#hovered) return;
    this.#hovered = found;
    this.canvas.classList.toggle("is-on-bar", found !== null);
    this.#say();
    this.#draw();
  }

  #say() {
    const bar = this.#hovered;
    if (!bar) return setText(this.info, this.hint ?? "");
    const keys = bar.keys.length === 0 ? "no key" : `key ${bar.keys.join(" and ")}`;
    const took = duration((bar.end ?? bar.begin) - bar.begin);
    setText(
      this.info,
      `${this.nameOf(bar.job)} #${bar.number}, ${keys}, attempt ${bar.attempt}, ${outcomeWord(bar.outcome)} after ${took}, since ${clock(bar.begin)} on slot ${bar.slot}`,
    );
  }

  #draw() {
    const found = fitted(this.canvas);
    if (found) paint(found.context, this.#scene(), themeColours(this.element));
  }
}
