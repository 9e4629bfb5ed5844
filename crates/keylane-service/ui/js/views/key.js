// One key: state of its lane, its head, its recent attempts, and its actions.

import { curl, get, keyPath } from "../api.js";
import { every, fill, h, KeyedList, refill, setText } from "../dom.js";
import { clock, count, duration, shortId } from "../format.js";
import { actionBar, keyActions } from "../parts/actions.js";
import { pageHead } from "../parts/page.js";
import { ago, button, empty, failure, jobLink, panel, skeleton, stateBadge, table } from "../parts/small.js";
import { copy } from "../parts/toast.js";
import { href } from "../route.js";
import { outcomeWord, stateWord } from "../words.js";

/**
 * @typedef {import("../types.js").KeyView} KeyView
 * @typedef {import("../lanes/slices.js").Bar} Bar
 */

const ASK_EVERY_MS = 2_000;
const SHOWN_BARS = 30;

/** @param {import("../main.js").View} view */
export function showKey({ app, root, path, signal, title }) {
  const [key] = path;
  title(`Key ${key}`);
  const state = stateBadge();
  const bar = actionBar({
    isReadOnly: () => app.version?.read_only ?? false,
    after: () => load(true),
    about: `key ${key}`,
  });
  const actions = h(
    "div",
    { class: "actions" },
    bar.element,
    button("Copy as curl", "copy", () => copy(curl(keyPath(key)), "Command")),
  );
  const head = pageHead(key, {
    crumb: [h("a", { href: href(["keys"]) }, "Keys"), " / "],
    beside: [state.element],
    actions,
  });
  head.heading.classList.add("mono");
  const about = h("div", null, skeleton());
  const ran = ranLately(app, key);
  fill(root, head.element, h("div", { class: "stack" }, panel("Lane", {}, about), ran.element));
  let isKnown = false;
  const load = async (isWanted = false) => {
    if (!isWanted && (app.live.isPaused || app.live.connection === "lost")) return;
    try {
      const view = await get(keyPath(key), {}, signal);
      isKnown = true;
      state.update(view.state);
      refill(about, JSON.stringify([view.state, view.length, view.head, app.model.nameOf(view.head?.job ?? "")]), () =>
        laneFacts(app, view),
      );
      bar.update(keyActions(view));
    } catch (error) {
      if (!signal.aborted && !isKnown)
        fill(
          about,
          failure(/** @type {Error} */ (error), () => load(true)),
        );
    }
  };
  app.live.on("key_changed", (event) => event.key === key && load(), signal);
  app.live.on("timeline", ran.show, signal);
  ran.show();
  every(signal, ASK_EVERY_MS, () => load());
  load(true);
}

/**
 * @param {import("../main.js").App} app
 * @param {KeyView} view
 */
function laneFacts(app, { key, length, head, state }) {
  if (!head)
    return empty(
      "This key has no unfinished subtasks",
      h("p", null, state === "paused" ? "The key is paused: its next subtasks wait." : "Its next subtask starts at once."),
    );
  const name = app.model.nameOf(head.job) ?? shortId(head.job);
  return h(
    "dl",
    { class: "facts" },
    h("dt", null, "Unfinished"),
    h("dd", null, `${count(length)}: the head, and ${count(Math.max(0, length - 1))} ${head.shared ? "others" : "behind it"}`),
    h("dt", null, "Head"),
    h(
      "dd",
      null,
      h("a", { href: href(["jobs", head.job, "subtasks", head.number]) }, `${name} #${head.number}`),
      `${head.shared ? ", which shares the key with others" : ""} · ${stateWord(head.state)} · ${head.attempts === 0 ? "not tried yet" : `attempt ${head.attempts}`}`,
    ),
    h("dt", null, "Head age"),
    h("dd", null, ago(head.since, "")),
    h("dt", null, "Subtasks of its job"),
    h("dd", null, h("a", { href: href(["jobs", head.job, "subtasks"], { key }) }, "Subtasks with this key")),
  );
}

/**
 * One after another, newest first: two of them never at the same time.
 * @param {import("../main.js").App} app
 * @param {string} key
 */
function ranLately(app, key) {
  const { element, body } = table("Recent attempts of this key, newest first", [
    "Subtask",
    ">Began",
    ">Duration",
    ">Idle before",
    "Outcome",
  ]);
  const place = h("div");
  const list = new KeyedList(
    body,
    (/** @type {Bar & {idle: number | null}} */ bar) => bar.id,
    (first) => {
      const took = h("td", { class: "number" });
      const idle = h("td", { class: "number muted" });
      const ended = h("td");
      const row = h(
        "tr",
        null,
        h("td", null, jobLink(first.job, `${app.model.nameOf(first.job) ?? shortId(first.job)} #${first.number}`)),
        h("td", { class: "number" }, clock(first.begin)),
        took,
        idle,
        ended,
      );
      row.querySelector("a")?.setAttribute("href", href(["jobs", first.job, "subtasks", first.number]));
      return {
        element: row,
        update: (bar) => {
          setText(took, duration((bar.end ?? app.model.now()) - bar.begin));
          setText(idle, bar.idle === null ? "–" : duration(bar.idle));
          setText(ended, outcomeWord(bar.outcome));
        },
      };
    },
  );
  const show = () => {
    const bars = app.model.slices
      .all()
      .filter((bar) => bar.keys.includes(key))
      .sort((a, b) => a.begin - b.begin);
    const withIdle = bars.map((bar, index) => ({
      ...bar,
      idle: index === 0 ? null : bar.begin - (bars[index - 1].end ?? bar.begin),
    }));
    if (bars.length === 0) fill(place, empty("No attempt in the last five minutes"));
    else if (!element.isConnected) fill(place, element);
    list.show(withIdle.slice(-SHOWN_BARS).reverse());
  };
  return { element: panel("Recent attempts", {}, place), show };
}
