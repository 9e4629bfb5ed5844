// The keys that work everywhere, and the map that says so.

import { h } from "./dom.js";
import { show } from "./parts/dialog.js";
import { href } from "./route.js";

const GO = /** @type {Record<string, string[]>} */ ({
  o: [],
  j: ["jobs"],
  k: ["keys"],
  f: ["failures"],
  a: ["allocation"],
  h: ["history"],
  c: ["schedules"],
  l: ["audit"],
  s: ["server"],
});

const MAP = [
  ["?", "These shortcuts"],
  ["g o", "Overview"],
  ["g j", "Jobs"],
  ["g k", "Keys"],
  ["g f", "Failures"],
  ["g a", "Allocation"],
  ["g h", "History"],
  ["g c", "Schedules"],
  ["g l", "Audit log"],
  ["g s", "Server"],
  ["n", "Submit a job"],
  ["/", "Search on this page"],
  ["p", "Pause or resume live updates"],
  ["← → ↑ ↓", "In the lanes: move between bars; Home and End go to the ends"],
  ["Enter", "In the lanes: open the subtask"],
  ["Esc", "Leave a bar, close a dialog"],
];

let isOpen = false;

export async function keyHelp() {
  if (isOpen) return;
  isOpen = true;
  const rows = MAP.map(([keys, what]) => [
    h(
      "dt",
      null,
      keys.split(" ").flatMap((key) => [h("kbd", null, key), " "]),
    ),
    h("dd", null, what),
  ]);
  const close = h("button", { class: "button", value: "no" }, "Close");
  await show(
    h(
      "dialog",
      { class: "dialog", "aria-labelledby": "dialog-title" },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "dialog-title" }, "Keyboard"),
        h("dl", { class: "keymap" }, rows.flat()),
        h("p", { class: "hint" }, "Single keys work outside of input fields, without Ctrl, Alt or Meta."),
        h("div", { class: "dialog-buttons" }, close),
      ),
    ),
  );
  isOpen = false;
}

/** @param {{togglePause: () => void}} commands */
export function listenToKeys({ togglePause }) {
  let isAfterG = false;
  document.addEventListener("keydown", (event) => {
    if (
      event.defaultPrevented ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      isTyping(event.target) ||
      document.querySelector("dialog[open]")
    )
      return;
    const place = isAfterG ? GO[event.key] : undefined;
    isAfterG = event.key === "g";
    if (place) location.hash = href(place);
    else if (event.key === "?") keyHelp();
    else if (event.key === "n") location.hash = href(["submit"]);
    else if (event.key === "p") togglePause();
    else if (event.key === "/") focusSearch();
    else return;
    event.preventDefault();
  });
}

function focusSearch() {
  const field = document.querySelector("input[type=search]");
  if (field instanceof HTMLElement) field.focus();
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}
