// Keys with unfinished subtasks, by age of the head or length of the lane, with their actions.

import { get } from "../api.js";
import { every, fill, h } from "../dom.js";
import { icon } from "../icons.js";
import { keyTable } from "../parts/keytable.js";
import { pageHead, pager } from "../parts/page.js";
import { empty, failure, skeleton } from "../parts/small.js";
import { href, parseRoute, setQuery } from "../route.js";

const PAGE = 50;
const ASK_EVERY_MS = 2_000;
const SORTS = [
  ["head_age", "Oldest head"],
  ["length", "Longest lane"],
];

/** @param {import("../main.js").View} view */
export function showKeys({ app, root, signal, title }) {
  title("Keys");
  const place = h("div", null, skeleton(8));
  const pages = pager(() => load(true));
  const load = async (isWanted = false) => {
    if (!isWanted && (app.live.isPaused || app.live.connection === "lost")) return;
    try {
      const page = await get("v1/keys", { sort: sort(), cursor: pages.cursor, limit: PAGE }, signal);
      pages.show(page.next_cursor);
      if (page.items.length === 0)
        fill(
          place,
          empty("No key has work", h("p", null, "Keys appear here while they have unfinished subtasks or are paused.")),
        );
      else if (!shown.element.isConnected) fill(place, shown.element);
      shown.show(page.items);
    } catch (error) {
      if (!signal.aborted && !shown.element.isConnected)
        fill(
          place,
          failure(/** @type {Error} */ (error), () => load(true)),
        );
    }
  };
  const shown = keyTable("Keys", { app, changed: () => load(true) });
  const buttons = SORTS.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === sort()), onclick: () => choose(value) }, text),
  );
  const choose = (/** @type {string} */ value) => {
    setQuery({ sort: value === "head_age" ? "" : value });
    for (const [index, one] of buttons.entries()) one.setAttribute("aria-pressed", String(SORTS[index][0] === value));
    pages.reset();
    load(true);
  };
  const find = h(
    "form",
    { class: "search", role: "search" },
    icon("search"),
    h("input", {
      type: "search",
      class: "input",
      placeholder: "Go to a key",
      "aria-label": "Go to a key",
      name: "key",
    }),
  );
  find.addEventListener("submit", (event) => {
    event.preventDefault();
    const key = String(new FormData(find).get("key") ?? "");
    if (key) location.hash = href(["keys", key]);
  });
  fill(
    root,
    pageHead("Keys").element,
    h(
      "div",
      { class: "filters" },
      h("div", { class: "segments", role: "group", "aria-label": "Order" }, buttons),
      find,
    ),
    h("div", { class: "panel" }, place, pages.element),
  );
  app.live.on("key_changed", () => load(), signal);
  every(signal, ASK_EVERY_MS, () => load());
}

const sort = () => parseRoute(location.hash).query.get("sort") ?? "head_age";
