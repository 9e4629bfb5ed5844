// Chart of the lanes: its visible range, the positions of pointer and keyboard, and its redraws.

import { h, setText } from "../dom.js";
import { clock, duration } from "../format.js";
import { href } from "../route.js";
import { outcomeWord, ruleWord } from "../words.js";
import { themeColours } from "./palette.js";
import { AXIS, paint, timeAt } from "./paint.js";
import { barAt, gapAt, rowsByKey, rowsBySlot, stepFrom } from "./rows.js";

/**
 * @typedef {import("../model.js").Model} Model
 * @typedef {import("./slices.js").Bar} Bar
 * @typedef {import("./rows.js").Row} Row
 */

const ROW = 22;
/** Maximum number of visible rows; further rows need scrolling. */
const SEEN_ROWS = 16;
/** What ran comes once a second: the right edge is where it is known, so that no bar grows into the past. */
const LAG_MS = 1_100;
const HINT = "Point at a bar, or use the arrow keys, to highlight all subtasks of its key.";
const STEPS = /** @type {const} */ ({
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
  Home: "home",
  End: "end",
});

export class LaneChart {
  /** Milliseconds from the left edge to the right one. */
  span = 30_000;
  /** The job whose keys are the rows; the slots are, if it is empty. */
  byKeysOf = "";

  /** @type {Row[]} */
  #rows = [];
  #rowsVersion = -1;
  #rowsFor = "";
  /** @type {Bar | null} */
  #hovered = null;
  /** @type {{row: number, bar: Bar} | null} */
  #focus = null;
  /** Position of the pointer, to find the bar under it after a redraw. @type {{x: number, y: number} | null} */
  #pointer = null;
  /** The right edge while it stands still. @type {number | null} */
  #frozenAt = null;
  #isDirty = true;
  #drawnAt = 0;
  #width = 0;
  #ratio = 1;
  /** @type {import("./palette.js").Colours | null} */
  #colours = null;

  /**
   * @param {Model} model
   * @param {AbortSignal} signal
   */
  constructor(model, signal) {
    this.model = model;
    this.canvas = h("canvas", { class: "lanes-canvas", "aria-hidden": "true" });
    this.body = h("div", { class: "lanes-body" }, this.canvas);
    this.info = h("p", { class: "lanes-info" }, HINT);
    /** Says what the keyboard is on; what the pointer is on is seen. */
    this.said = h("p", { class: "visually-hidden", "aria-live": "polite" });
    this.scroll = h(
      "div",
      {
        class: "lanes-scroll",
        tabindex: 0,
        role: "application",
        "aria-roledescription": "lane chart",
      },
      this.body,
    );
    this.element = h("div", { class: "lanes-chart" }, this.scroll, this.info, this.said);
    this.showKeysOf("");
    this.#listen(signal);
    this.#loop(signal);
  }

  /** @param {AbortSignal} signal */
  #listen(signal) {
    const options = { signal };
    this.scroll.addEventListener("scroll", () => this.#touch(), options);
    this.scroll.addEventListener("pointermove", (event) => this.#point(event), options);
    this.scroll.addEventListener("pointerleave", () => this.#point(null), options);
    this.scroll.addEventListener("click", (event) => this.#click(event), options);
    this.scroll.addEventListener("keydown", (event) => this.#key(event), options);
    this.scroll.addEventListener("focus", () => this.#touch(), options);
    this.scroll.addEventListener("blur", () => this.#setFocus(null), options);
    const resized = new ResizeObserver(() => this.#measure());
    resized.observe(this.scroll);
    signal.addEventListener("abort", () => resized.disconnect());
    for (const media of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
      matchMedia(media).addEventListener("change", () => this.#forgetColours(), options);
    }
    addEventListener("themechange", () => this.#forgetColours(), options);
    this.model.live.watch(() => this.#pauseChanged(), signal);
    this.#pauseChanged();
  }

  #forgetColours() {
    this.#colours = null;
    this.#touch();
  }

  #pauseChanged() {
    const { live } = this.model;
    const stands = live.isPaused || live.connection === "lost" || live.connection === "stopped";
    if (stands) this.#frozenAt ??= this.model.now() - LAG_MS;
    else this.#frozenAt = null;
    this.#touch();
  }

  #touch() {
    this.#isDirty = true;
  }

  #measure() {
    const width = this.scroll.clientWidth;
    if (width === 0) return;
    this.#width = width;
    this.#ratio = devicePixelRatio || 1;
    this.#touch();
  }

  /** One frame after another; most of them find nothing to do. @param {AbortSignal} signal */
  #loop(signal) {
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const frame = () => {
      if (signal.aborted) return;
      if (this.#isDirty || this.#hasMoved(still.matches)) this.#draw();
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  /** Whether a bar would stand on another pixel; without motion, whether there is something new. @param {boolean} still */
  #hasMoved(still) {
    if (this.#rowsVersion !== this.model.slices.version) return true;
    if (still || this.#frozenAt !== null) return false;
    return this.#now() - this.#drawnAt >= this.span / Math.max(1, this.#width * this.#ratio);
  }

  #now() {
    return this.#frozenAt ?? this.model.now() - LAG_MS;
  }

  /** @param {string} job */
  showKeysOf(job) {
    this.byKeysOf = job;
    const rows = job ? "each key of a job" : "each slot";
    this.scroll.setAttribute(
      "aria-label",
      `Recent attempts, one row for ${rows}. Arrow keys move between bars, Enter opens one.`,
    );
    this.#touch();
  }

  /** @param {number} span */
  setSpan(span) {
    this.span = span;
    this.#touch();
  }

  #build() {
    const { slices, summary } = this.model;
    const wanted = `${this.byKeysOf}/${summary?.slots ?? 0}`;
    if (this.#rowsVersion === slices.version && this.#rowsFor === wanted) return;
    // What stands still is not changed under the reader's eyes.
    if (this.#frozenAt !== null && this.#rowsFor === wanted && this.#rows.length > 0) return;
    this.#rowsVersion = slices.version;
    this.#rowsFor = wanted;
    const bars = slices.all();
    this.#rows = this.byKeysOf ? rowsByKey(bars, this.byKeysOf) : rowsBySlot(bars, summary?.slots ?? 0);
    const height = AXIS + this.#rows.length * ROW;
    this.body.style.height = `${height}px`;
    this.scroll.style.height = `${Math.min(height, AXIS + SEEN_ROWS * ROW) + 2}px`;
    this.element.classList.toggle("is-empty", this.#rows.length === 0);
  }

  /** @returns {import("./paint.js").Scene} */
  #scene() {
    const to = this.#now();
    return {
      rows: this.#rows,
      from: to - this.span,
      to,
      width: this.#width,
      height: this.scroll.clientHeight,
      scroll: this.scroll.scrollTop,
      gutter: this.byKeysOf ? (this.#width < 520 ? 100 : 140) : this.#width < 520 ? 58 : 74,
      rowHeight: ROW,
      knownFrom: this.model.slices.knownFrom,
      lit: this.#focus?.bar ?? this.#hovered,
      focus: this.#focus,
    };
  }

  #draw() {
    if (this.#width === 0) return;
    this.#isDirty = false;
    this.#build();
    if (this.#pointer) this.#lookUnder(this.#pointer);
    const scene = this.#scene();
    this.#drawnAt = scene.to;
    const context = this.#context(scene);
    if (!context) return;
    this.#colours ??= themeColours(this.element);
    paint(context, scene, this.#colours);
  }

  /** @param {import("./paint.js").Scene} scene */
  #context({ width, height }) {
    const pixels = { width: Math.round(width * this.#ratio), height: Math.round(height * this.#ratio) };
    if (this.canvas.width !== pixels.width || this.canvas.height !== pixels.height) {
      Object.assign(this.canvas, pixels);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const context = this.canvas.getContext("2d");
    context?.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
    return context;
  }

  /** @param {PointerEvent | null} event */
  #point(event) {
    const box = this.scroll.getBoundingClientRect();
    this.#pointer = event && { x: event.clientX - box.left, y: event.clientY - box.top };
    if (!event) {
      this.#hovered = null;
      this.#say();
    }
    this.#touch();
  }

  /** @param {{x: number, y: number}} point */
  #lookUnder({ x, y }) {
    const scene = this.#scene();
    const row = this.#rows[Math.floor((y - AXIS + scene.scroll) / ROW)];
    const isOnBars = row !== undefined && y > AXIS && x > scene.gutter;
    const time = timeAt(scene, x);
    const slack = ((scene.to - scene.from) / scene.width) * 3;
    this.#hovered = isOnBars ? barAt(row.bars, time, scene.to, slack) : null;
    this.canvas.classList.toggle("is-on-bar", this.#hovered !== null);
    if (this.#focus) return;
    if (this.#hovered || !isOnBars) this.#say();
    else setText(this.info, this.#gapText(row, time, scene));
  }

  /**
   * @param {Row} row
   * @param {number} time
   * @param {import("./paint.js").Scene} scene
   */
  #gapText(row, time, { from, to }) {
    const { knownFrom } = this.model.slices;
    if (time < knownFrom) return "No data: the page was opened later.";
    const gap = gapAt(row.bars, time, Math.max(from, knownFrom), to);
    const missing = this.model.slices.dropped(from) > 0 ? ", or ran an attempt outside of the sample" : "";
    const what = this.byKeysOf ? `no attempt of ${row.name} of this job` : `${row.name} was idle`;
    return `${clock(gap.begin)}: ${what} for ${duration(gap.end - gap.begin)}${missing}`;
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const box = this.scroll.getBoundingClientRect();
    this.#pointer = { x: event.clientX - box.left, y: event.clientY - box.top };
    this.#lookUnder(this.#pointer);
    if (this.#hovered) open(this.#hovered);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
    if (step) {
      const { from, to } = this.#scene();
      this.#setFocus(stepFrom(this.#rows, this.#focus, step, { from, to }));
    } else if (event.key === "Enter" && this.#focus) {
      open(this.#focus.bar);
    } else if (event.key === "Escape" && this.#focus) {
      this.#setFocus(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** @param {{row: number, bar: Bar} | null} focus */
  #setFocus(focus) {
    this.#focus = focus;
    this.#touch();
    if (focus) this.#reveal(focus.row);
    this.#say();
    setText(this.said, focus ? this.describe(focus.bar) : "");
  }

  /** @param {number} row */
  #reveal(row) {
    const top = row * ROW;
    const seen = this.scroll.clientHeight - AXIS;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top + ROW > this.scroll.scrollTop + seen) this.scroll.scrollTop = top + ROW - seen;
  }

  #say() {
    const bar = this.#focus?.bar ?? this.#hovered;
    setText(this.info, bar ? this.describe(bar) : HINT);
  }

  /** @param {Bar} bar */
  describe(bar) {
    const named = (/** @type {string} */ key) => (bar.shared.includes(key) ? `${key} (shared)` : key);
    const keys = bar.keys.length === 0 ? "no key" : `key ${bar.keys.map(named).join(" and ")}`;
    const took = duration((bar.end ?? this.#now()) - bar.begin);
    const attempt = bar.attempt > 1 ? `attempt ${bar.attempt}, ` : "";
    const name = this.model.nameOf(bar.job) ?? bar.job;
    const end = bar.end === null ? `has run for ${took}` : `${outcomeWord(bar.outcome)} after ${took}`;
    return `${name} #${bar.number}, ${keys}, ${attempt}${end}, since ${clock(bar.begin)} on slot ${bar.slot}, by rule ${ruleWord(bar.rule)}`;
  }

  /** What the picture shows, for the table beside it. */
  get rows() {
    this.#build();
    return this.#rows;
  }
}

/** @param {Bar} bar */
function open(bar) {
  location.hash = href(["jobs", bar.job, "subtasks", bar.number]);
}
