// A line of how a number went, too small for axes: its label says the newest and the highest.

import { short } from "../format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 100;
const HEIGHT = 22;

/** @param {string} label */
export function sparkline(label) {
  const element = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "polyline");
  element.setAttribute("class", "spark");
  element.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  element.setAttribute("preserveAspectRatio", "none");
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);
  element.append(line);
  /** @param {number[]} values */
  const show = (values) => {
    if (values.length < 2) return;
    const most = Math.max(...values, 1e-9);
    const points = values.map(
      (value, index) =>
        `${((index / (values.length - 1)) * WIDTH).toFixed(1)},${(HEIGHT - 1 - (value / most) * (HEIGHT - 3)).toFixed(1)}`,
    );
    line.setAttribute("points", points.join(" "));
    element.setAttribute("aria-label", `${label}: now ${short(values[values.length - 1])}, maximum ${short(most)}`);
  };
  return { element, show };
}
