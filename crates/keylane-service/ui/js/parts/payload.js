// A payload or result as it was sent, indented, with every digit of its numbers; and other long texts.

import { h } from "../dom.js";
import { printExact } from "../exact.js";
import { button } from "./small.js";
import { copy } from "./toast.js";

/**
 * @param {unknown} value
 * @param {string} title
 */
export function payload(value, title) {
  return longText(printExact(value), title);
}

/**
 * A text as it is, with a way to copy it.
 * @param {string} text
 * @param {string} title
 * @param {import("../dom.js").Child[]} beside
 */
export function longText(text, title, ...beside) {
  return h(
    "div",
    null,
    h(
      "div",
      { class: "panel-head" },
      h("h3", null, title),
      h(
        "div",
        { class: "panel-side" },
        ...beside,
        button("Copy", "copy", () => copy(text, title), {
          class: "button is-small",
          "aria-label": `Copy ${title.toLowerCase()}`,
        }),
      ),
    ),
    h("pre", { class: "payload", tabindex: 0, "aria-label": title }, h("code", null, text)),
  );
}

/**
 * The beginning of it on one line.
 * @param {unknown} value
 */
export function payloadLine(value) {
  if (value === undefined) return "";
  const text = printExact(value).replace(/\s+/g, " ");
  return text.length > 160 ? `${text.slice(0, 159)}…` : text;
}
