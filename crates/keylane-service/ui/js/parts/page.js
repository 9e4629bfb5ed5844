// The head of a page, and pages of a long list.

import { h } from "../dom.js";
import { button } from "./small.js";

/**
 * @param {string} title
 * @param {{crumb?: import("../dom.js").Child[], beside?: import("../dom.js").Child[], actions?: HTMLElement}} [more]
 */
export function pageHead(title, { crumb, beside = [], actions } = {}) {
  const heading = h("h1", { tabindex: -1 }, title);
  const element = h(
    "header",
    { class: "page-head" },
    crumb && h("nav", { class: "crumb", "aria-label": "Breadcrumb" }, crumb),
    heading,
    beside,
    actions,
  );
  return { element, heading };
}

/**
 * Pages of a list, forth by the server's cursors and back by those that were used.
 * @param {(cursor: string | undefined) => void} load
 */
export function pager(load) {
  /** @type {(string | undefined)[]} */
  let used = [undefined];
  /** @type {string | undefined} */
  let next;
  const back = button("Back", "back", () => go(() => used.pop()), { class: "button is-small" });
  const on = button("Next", "next", () => go(() => used.push(next)), { class: "button is-small" });
  const text = h("span", null);
  const element = h("nav", { class: "pager", "aria-label": "Pages of this list", hidden: true }, back, text, on);
  const go = (/** @type {() => void} */ step) => {
    step();
    load(used.at(-1));
  };
  return {
    element,
    get cursor() {
      return used.at(-1);
    },
    get isFirst() {
      return used.length === 1;
    },
    /** @param {string | undefined} cursor */
    show(cursor) {
      next = cursor;
      element.hidden = used.length === 1 && !next;
      back.disabled = used.length === 1;
      on.disabled = !next;
      text.textContent = `Page ${used.length}`;
    },
    reset() {
      used = [undefined];
    },
  };
}
