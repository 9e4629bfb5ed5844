// Table of keys: state, head and its age, number of waiting subtasks, and actions.

import { h, KeyedList, refill, setText } from "../dom.js";
import { count, shortId } from "../format.js";
import { href } from "../route.js";
import { stateWord } from "../words.js";
import { actionBar, keyActions } from "./actions.js";
import { ago, cell, keyLink, setAgo, stateBadge, swatch, table } from "./small.js";

/** @typedef {import("../types.js").KeyView} KeyView */

/**
 * @param {string} label
 * @param {{app: import("../main.js").App, changed?: () => unknown, isShort?: boolean}} options
 */
export function keyTable(label, { app, changed, isShort = false }) {
  const columns = isShort
    ? ["Key", "State", ">Waiting", ">Head age"]
    : ["Key", "State", ">Waiting behind", "Head", ">Head age", ">Attempts", ">Actions"];
  const { element, body } = table(label, columns, isShort ? "" : "is-cards");
  const list = new KeyedList(body, (/** @type {KeyView} */ view) => view.key, makeRow);

  /** @param {KeyView} first */
  function makeRow(first) {
    const state = stateBadge();
    const behind = h("td", { class: "number", "data-label": "Waiting" });
    const head = cell("Head", "");
    const since = ago(undefined, "");
    const attempts = h("td", { class: "number", "data-label": "Attempts" });
    const actions = actionBar({
      isReadOnly: () => app.version?.read_only ?? false,
      after: () => changed?.(),
      about: `key ${first.key}`,
    });
    const row = h(
      "tr",
      { "data-key": first.key },
      h("td", { class: isShort ? "grow" : "" }, keyLink(first.key)),
      cell("State", "", state.element),
      behind,
      !isShort && head,
      cell("Head age", "number", since),
      !isShort && attempts,
      !isShort && h("td", null, actions.element),
    );
    const update = (/** @type {KeyView} */ view) => {
      state.update(view.state);
      setText(behind, count(Math.max(0, view.length - 1)));
      refill(
        head,
        JSON.stringify([view.head?.job, view.head?.number, view.head?.state, app.model.nameOf(view.head?.job ?? "")]),
        () => headLink(app, view),
      );
      setAgo(since, view.head?.since ?? view.paused_since);
      setText(attempts, view.head ? count(view.head.attempts) : "–");
      actions.update(keyActions(view));
    };
    return { element: row, update };
  }
  return { element, show: (/** @type {KeyView[]} */ keys) => list.show(keys) };
}

/**
 * @param {import("../main.js").App} app
 * @param {KeyView} view
 */
function headLink(app, { head }) {
  if (!head) return h("span", { class: "muted" }, "–");
  const name = app.model.nameOf(head.job) ?? shortId(head.job);
  return h(
    "span",
    null,
    h(
      "a",
      { class: "job-link", href: href(["jobs", head.job, "subtasks", head.number]) },
      swatch(head.job),
      h("span", null, `${name} #${head.number}`),
    ),
    h("span", { class: "sub" }, stateWord(head.state)),
  );
}
