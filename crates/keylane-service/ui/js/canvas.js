// What all charts on a canvas share: their size, their redraws, and the table that shows the same.

import { h } from "./dom.js";
import { icon } from "./icons.js";

/**
 * Redraws a canvas when its size or the theme changes.
 * @param {HTMLCanvasElement} canvas
 * @param {() => void} draw
 * @param {AbortSignal} signal
 */
export function redraw(canvas, draw, signal) {
  const resized = new ResizeObserver(draw);
  resized.observe(canvas);
  signal.addEventListener("abort", () => resized.disconnect());
  addEventListener("themechange", draw, { signal });
}

/**
 * Fits the pixels of a canvas to its size and clears it; null while it has no size.
 * @param {HTMLCanvasElement} canvas
 */
export function fitted(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const context = canvas.getContext("2d");
  if (width === 0 || !context) return null;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}

/**
 * A button that shows a table in place of a chart.
 * @param {HTMLElement[]} chart elements of the chart
 * @param {HTMLElement} twin place of the table
 * @param {() => void} draw draws the chart when it is shown again
 */
export function tableToggle(chart, twin, draw) {
  const toggle = h(
    "button",
    { type: "button", class: "button is-small", "aria-pressed": "false" },
    icon("table"),
    "View as table",
  );
  twin.hidden = true;
  toggle.addEventListener("click", () => {
    twin.hidden = !twin.hidden;
    toggle.setAttribute("aria-pressed", String(!twin.hidden));
    for (const element of chart) element.hidden = !twin.hidden;
    draw();
  });
  return toggle;
}
