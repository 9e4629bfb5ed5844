// Recurring jobs: next time, results of the last times, and the actions to pause, resume and run them.

import { get, post } from "../api.js";
import { every, fill, h } from "../dom.js";
import { count, shortId } from "../format.js";
import { confirm } from "../parts/dialog.js";
import { pageHead, pager } from "../parts/page.js";
import { ago, button, cell, empty, failure, jobLink, skeleton, stateBadge, table } from "../parts/small.js";
import { attempt } from "../parts/toast.js";

/** @typedef {import("../types.js").Schedule} Schedule */

const PAGE = 50;
const ASK_EVERY_MS = 5_000;
const COLUMNS = ["Schedule", "State", "Next", "Last job", ">Jobs made", ">Passed over", "Actions"];

/** @param {import("../main.js").View} view */
export function showSchedules({ app, root, signal, title }) {
  title("Schedules");
  const place = h("div", null, skeleton(4));
  const list = table("Schedules", COLUMNS, "is-cards");
  const pages = pager(() => load(true));
  let shown = "";
  const load = async (isWanted = false) => {
    if (!isWanted && (app.live.isPaused || app.live.connection === "lost")) return;
    try {
      const page = await get("v1/schedules", { cursor: pages.cursor, limit: PAGE }, signal);
      pages.show(page.next_cursor);
      const state = JSON.stringify(page.items);
      if (signal.aborted || state === shown) return;
      shown = state;
      if (page.items.length === 0) fill(place, nothing());
      else {
        list.body.replaceChildren(...page.items.map((/** @type {Schedule} */ one) => row(app, one, () => load(true))));
        fill(place, list.element);
      }
    } catch (error) {
      if (!signal.aborted && shown === "")
        fill(
          place,
          failure(/** @type {Error} */ (error), () => load(true)),
        );
    }
  };
  fill(root, pageHead("Schedules").element, h("div", { class: "panel" }, place, pages.element));
  every(signal, ASK_EVERY_MS, () => load());
}

function nothing() {
  const command = "keylane schedules set report --cron '0 9 * * MON-FRI' --kind report";
  return empty("No schedules", h("p", null, "A schedule submits a job at times of a pattern: ", h("code", null, command)));
}

/**
 * @param {import("../main.js").App} app
 * @param {Schedule} schedule
 * @param {() => void} changed
 */
function row(app, schedule, changed) {
  const { name, cron, time_zone: zone, next, last_job: job, last_passed: passed, held_up: heldUp } = schedule;
  const why = heldUp ? `Its due time has made no job yet: ${heldUp}` : passed && `Last passed over: ${passed.text}`;
  return h(
    "tr",
    { "data-schedule": name },
    h("td", { class: "grow" }, h("div", null, h("b", null, name), h("span", { class: "sub" }, `${cron} · ${zone}`))),
    cell("State", "", stateBadge(schedule.paused ? "paused" : heldUp ? "waiting" : "scheduled").element),
    cell("Next", "", next[0] ? h("time", { dateTime: next[0] }, new Date(next[0]).toLocaleString()) : "–"),
    cell("Last job", "", job ? jobLink(job, shortId(job)) : "–", " ", schedule.last_fired ? ago(schedule.last_fired) : ""),
    cell("Jobs made", "number", count(schedule.fired)),
    cell("Passed over", "number", count(schedule.passed), why ? h("span", { class: "sub" }, why) : null),
    cell("Actions", "", app.version?.read_only ? "–" : actions(schedule, changed)),
  );
}

/**
 * @param {Schedule} schedule
 * @param {() => void} changed
 */
function actions({ name, paused }, changed) {
  const path = `v1/schedules/${encodeURIComponent(name)}`;
  const turn = async () => {
    const [verb, done] = paused ? ["resume", `${name} continues`] : ["pause", `${name} is paused`];
    if (await attempt(() => post(`${path}/${verb}`, {}), done)) changed();
  };
  const run = async () => {
    const sure = await confirm({
      title: `Run ${name} now?`,
      effect: ["Its job is submitted at once, also while the schedule is paused. The next times stay as they are."],
      verb: "Run now",
    });
    if (sure && (await attempt(() => post(`${path}/run`, {}), `${name} has submitted its job`))) changed();
  };
  const small = { class: "button is-small" };
  return h(
    "div",
    { class: "actions" },
    paused
      ? button("Resume", "play", turn, { ...small, "aria-label": `Resume ${name}` })
      : button("Pause", "pause", turn, { ...small, "aria-label": `Pause ${name}` }),
    button("Run now…", "retry", run, { ...small, "aria-label": `Run ${name} now` }),
  );
}
