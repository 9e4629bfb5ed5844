// Draws rows of bars. Only rows that are seen are asked for, and of bars smaller than a pixel only one a pixel.

import { colourOf } from "./palette.js";
import { firstAfter, sharesKey } from "./rows.js";

/**
 * @typedef {import("./slices.js").Bar} Bar
 * @typedef {import("./rows.js").Row} Row
 * @typedef {import("./palette.js").Colours} Colours
 *
 * @typedef {object} Scene
 * @property {Row[]} rows
 * @property {number} from the time at the left edge
 * @property {number} to the time at the right edge
 * @property {number} width in CSS pixels
 * @property {number} height
 * @property {number} scroll how far the rows are scrolled
 * @property {number} gutter the width of the labels
 * @property {number} rowHeight
 * @property {number} knownFrom before that time a gap says nothing
 * @property {Bar | null} lit the bar whose keys are lit
 * @property {{row: number, bar: Bar} | null} focus the bar that has the keyboard
 */

/** The height of the line with the times. */
export const AXIS = 22;
const STEPS_MS = [
  1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000,
];

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Colours} colours
 */
export function paint(context, scene, colours) {
  context.clearRect(0, 0, scene.width, scene.height);
  context.textBaseline = "middle";
  const first = Math.floor(scene.scroll / scene.rowHeight);
  const last = Math.min(scene.rows.length, Math.ceil((scene.scroll + scene.height - AXIS) / scene.rowHeight));
  context.save();
  context.beginPath();
  context.rect(0, AXIS, scene.width, scene.height - AXIS);
  context.clip();
  paintGrid(context, scene, colours);
  paintUnknown(context, scene, colours);
  for (let index = first; index < last; index += 1) paintRow(context, scene, colours, index);
  if (scene.focus) paintFocus(context, scene, colours, scene.focus);
  context.restore();
  paintAxis(context, scene, colours);
}

/**
 * @param {Scene} scene
 * @param {number} time
 */
export function xOf({ from, to, width, gutter }, time) {
  return gutter + ((time - from) / (to - from)) * (width - gutter);
}

/**
 * @param {Scene} scene
 * @param {number} x
 */
export function timeAt({ from, to, width, gutter }, x) {
  return from + ((x - gutter) / (width - gutter)) * (to - from);
}

/** @param {Scene} scene */
function stepOf({ from, to, width, gutter }) {
  const least = ((to - from) / Math.max(1, width - gutter)) * 70;
  return STEPS_MS.find((step) => step >= least) ?? 14_400_000;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Colours} colours
 */
function paintGrid(context, scene, colours) {
  context.fillStyle = colours.line;
  const step = stepOf(scene);
  for (let time = Math.ceil(scene.from / step) * step; time <= scene.to; time += step) {
    context.fillRect(Math.round(xOf(scene, time)), AXIS, 1, scene.height);
  }
}

/**
 * Nothing is known about earlier times: neither that a slot was busy nor that it was idle.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Colours} colours
 */
function paintUnknown(context, scene, colours) {
  const right = Math.min(xOf(scene, scene.knownFrom), scene.width) - 4;
  if (right <= scene.gutter) return;
  context.fillStyle = colours.stripe;
  context.fillRect(scene.gutter, AXIS, right - scene.gutter, scene.height);
  if (right - scene.gutter < 160) return;
  context.font = `11px ${colours.font}`;
  context.fillStyle = colours.muted;
  context.textAlign = "right";
  context.fillText("before this page was opened", right - 8, AXIS + Math.min(scene.rowHeight, scene.height - AXIS) / 2);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Colours} colours
 */
function paintAxis(context, scene, colours) {
  context.font = `11px ${colours.font}`;
  context.fillStyle = colours.muted;
  context.textAlign = "center";
  const step = stepOf(scene);
  for (let time = Math.ceil(scene.from / step) * step; time <= scene.to; time += step) {
    const x = xOf(scene, time);
    const date = new Date(time);
    const text = [date.getHours(), date.getMinutes(), date.getSeconds()]
      .map((part) => String(part).padStart(2, "0"))
      .join(":");
    if (x - 24 > scene.gutter && x + 24 < scene.width) context.fillText(text, x, AXIS / 2);
  }
  context.fillStyle = colours.line;
  context.fillRect(0, AXIS - 1, scene.width, 1);
}

/**
 * @param {Scene} scene
 * @param {number} index
 */
function topOf({ rowHeight, scroll }, index) {
  return AXIS + index * rowHeight - scroll;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Colours} colours
 * @param {number} index
 */
function paintRow(context, scene, colours, index) {
  const row = scene.rows[index];
  const top = topOf(scene, index);
  const middle = top + scene.rowHeight / 2;
  context.fillStyle = colours.idle;
  const known = Math.max(scene.gutter, xOf(scene, scene.knownFrom));
  context.fillRect(known, Math.round(middle), scene.width - known, 1);
  const isLit = paintBars(context, scene, colours, row, top);
  context.globalAlpha = 1;
  // What has begun before the left edge stays under the label.
  context.fillStyle = colours.surface;
  context.fillRect(0, top, scene.gutter - 1, scene.rowHeight);
  context.font = `11px ${colours.font}`;
  context.textAlign = "left";
  context.fillStyle = isLit ? colours.text : colours.muted;
  context.fillText(clip(context, row.label, scene.gutter - 18), 10, middle);
}

/**
 * Says whether one of them is lit.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Colours} colours
 * @param {Row} row
 * @param {number} top
 */
function paintBars(context, scene, colours, row, top) {
  const { bars } = row;
  const end = firstAfter(bars, scene.to);
  // Bars of a row that is a key or a slot don't overlap: only the one before the left edge may reach into it.
  let begin = firstAfter(bars, scene.from);
  while (begin > 0 && (bars[begin - 1].end ?? scene.to) >= scene.from) begin -= 1;
  let filled = -1;
  let isAnyLit = false;
  for (let index = begin; index < end; index += 1) {
    const bar = bars[index];
    const left = Math.max(scene.gutter, xOf(scene, bar.begin));
    const right = xOf(scene, Math.min(bar.end ?? scene.to, scene.to));
    const isLit = scene.lit !== null && sharesKey(bar, scene.lit);
    isAnyLit ||= isLit;
    if (right < filled && !isLit) continue;
    paintBar(context, scene, colours, { bar, left, right: Math.max(right, left + 1), top, isLit });
    filled = Math.floor(right) + 0.99;
    if (right - left >= 1) filled = right;
  }
  return isAnyLit;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Colours} colours
 * @param {{bar: Bar, left: number, right: number, top: number, isLit: boolean}} place
 */
function paintBar(context, scene, colours, { bar, left, right, top, isLit }) {
  const height = scene.rowHeight - 5;
  const y = top + 2.5;
  // A gap of a pixel shows where one ends and the next begins.
  const width = Math.max(1, right - left - (right - left > 3 ? 1 : 0));
  context.globalAlpha = scene.lit === null || isLit ? 1 : 0.22;
  context.fillStyle = colours.jobs[colourOf(bar.job)];
  context.beginPath();
  context.roundRect(left, y, width, height, Math.min(3, width / 3));
  context.fill();
  const isBad = bar.outcome !== undefined && bar.outcome !== "succeeded";
  if (isBad) paintFailure(context, colours, bar, { left, y, width, height });
  if (isLit && width > 3) {
    context.strokeStyle = colours.text;
    context.lineWidth = 1.5;
    context.stroke();
  }
  if (width > 40) {
    context.fillStyle = colours.onBar;
    context.font = `10.5px ${colours.font}`;
    context.textAlign = "left";
    const text = clip(context, bar.keys[0] ?? `#${bar.number}`, width - (isBad ? 16 : 10));
    if (text.length > 2) context.fillText(text, left + 5, y + height / 2 + 0.5);
  }
}

/**
 * A corner for a retry, a whole edge for the end: told by the shape, and not by the colour alone.
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 * @param {Bar} bar
 * @param {{left: number, y: number, width: number, height: number}} box
 */
function paintFailure(context, colours, bar, { left, y, width, height }) {
  const edge = Math.min(6, width);
  context.save();
  context.fillStyle = colours.surface;
  context.fillRect(left + width - edge - 1, y, edge + 1, height);
  context.fillStyle = colours.failed;
  if (bar.outcome === "failed" || bar.outcome === "lost") {
    context.fillRect(left + width - edge, y, edge, height);
  } else {
    context.beginPath();
    context.moveTo(left + width - edge, y);
    context.lineTo(left + width, y + height / 2);
    context.lineTo(left + width - edge, y + height);
    context.fill();
  }
  context.restore();
  context.beginPath();
  context.rect(left, y, width, height);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Colours} colours
 * @param {{row: number, bar: Bar}} focus
 */
function paintFocus(context, scene, colours, { row, bar }) {
  const left = Math.max(scene.gutter, xOf(scene, bar.begin));
  const right = Math.max(left + 3, xOf(scene, Math.min(bar.end ?? scene.to, scene.to)));
  if (right < scene.gutter) return;
  context.strokeStyle = colours.focus;
  context.lineWidth = 2;
  context.beginPath();
  context.roundRect(left - 2, topOf(scene, row) + 1, right - left + 3, scene.rowHeight - 2, 4);
  context.stroke();
}

/** @type {Map<string, string>} */
const clipped = new Map();

/**
 * A text that fits, with an ellipsis at its end if it had to be cut.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
function clip(context, text, width) {
  const room = Math.floor(width);
  const key = `${room} ${context.font} ${text}`;
  const known = clipped.get(key);
  if (known !== undefined) return known;
  let shown = text;
  for (let length = text.length; length > 0 && context.measureText(shown).width > room; length -= 1) {
    shown = `${text.slice(0, length - 1)}…`;
  }
  // Measuring is slow, and widths repeat; a full memory begins anew.
  if (clipped.size > 5_000) clipped.clear();
  clipped.set(key, shown);
  return shown;
}
