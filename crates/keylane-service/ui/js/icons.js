// Small line drawings beside words: never the only thing that says something.

const SHAPES = {
  overview: ["M3 3h7v7H3zM14 3h7v4h-7zM14 11h7v10h-7zM3 14h7v7H3z"],
  jobs: ["M4 6h16M4 12h16M4 18h10"],
  lanes: ["M3 6h8M14 6h7M3 12h5M11 12h10M3 18h11M17 18h4"],
  keys: ["M15.5 3a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM11 12.5 3 20.5V21h4v-3h3v-3"],
  failures: ["M12 3 2.5 20h19zM12 10v4M12 17v.01"],
  history: ["M4 12a8 8 0 1 0 2.3-5.6L4 8.5M4 4v4.5h4.5M12 8v4.5l3 1.8"],
  allocation: ["M3 20h18M3 16l5-5 4 3 8-9"],
  server: ["M3 4h18v7H3zM3 13h18v7H3zM7 7.5h.01M7 16.5h.01"],
  submit: ["M12 5v14M5 12h14"],
  scheduled: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7v5l3 2"],
  queued: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM8 12h.01M12 12h.01M16 12h.01"],
  running: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM10 8.5v7l5.5-3.5z"],
  paused: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM10 9v6M14 9v6"],
  cancelling: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM9 9h6v6H9z"],
  succeeded: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM8 12.5l3 3 5-6"],
  failed: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7.5v5M12 16v.01"],
  cancelled: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM9 9l6 6M15 9l-6 6"],
  skipped: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM9 9l4 3-4 3zM15.5 9v6"],
  superseded: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM8 9l3 3-3 3M13 9l3 3-3 3"],
  waiting: ["M7 3h10M7 21h10M8 3v3.5L12 12l4-5.5V3M8 21v-3.5L12 12l4 5.5V21"],
  ready: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 12h.01"],
  backing_off: ["M20 12a8 8 0 1 1-2.5-5.800M20 3v4h-4"],
  open: ["M5 12h14M13 6l6 6-6 6"],
  stopped: ["M8 3h8l5 5v8l-5 5H8l-5-5V8zM9 12h6"],
  pause: ["M9 5v14M15 5v14"],
  play: ["M7 4.5v15L19 12z"],
  retry: ["M20 12a8 8 0 1 1-2.5-5.800M20 3v4h-4"],
  cancel: ["M6 6l12 12M18 6 6 18"],
  skip: ["M5 5l9 7-9 7zM18 5v14"],
  remove: ["M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13"],
  copy: ["M9 9h11v11H9zM15 9V4H4v11h5"],
  table: ["M3 5h18v14H3zM3 10h18M3 14.5h18M9 5v14"],
  search: ["M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5"],
  help: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM9.5 9.5a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .8-1 1.700M12 16.5v.01"],
  theme: ["M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18"],
  ok: ["M5 12.5l5 5L19 7"],
  lost: ["M3 3l18 18M8.5 13.5a5 5 0 0 1 3-1.5M5 10a10 10 0 0 1 4-2.3M13 7a10 10 0 0 1 6 3M12 18v.01"],
  back: ["M15 5l-7 7 7 7"],
  next: ["M9 5l7 7-7 7"],
};

/** @typedef {keyof typeof SHAPES} IconName */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} name
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  for (const shape of SHAPES[/** @type {IconName} */ (name)] ?? SHAPES.ready) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", shape);
    svg.append(path);
  }
  return svg;
}
