// Jobs as rows: what each is, how it is, how far, and why it waits.

import { h, KeyedList, refill, setText } from "../dom.js";
import { count, jobTitle, percent, shortId } from "../format.js";
import { href } from "../route.js";
import { isFinal } from "../words.js";
import { becauseShort } from "./because.js";
import { ago, cell, endedOf, eta, jobLink, progressBar, setAgo, stateBadge, table } from "./small.js";

/** @typedef {import("../types.js").Job} Job */

/**
 * @param {string} label
 * @param {{isShort?: boolean}} [options]
 */
export function jobTable(label, { isShort = false } = {}) {
  const columns = [
    "Job",
    "State",
    "Progress",
    ...(isShort ? [] : [">Running"]),
    ">Failed",
    ">Remaining",
    ...(isShort ? [] : [">Submitted"]),
  ];
  const { element, body } = table(label, columns, "is-cards");
  const list = new KeyedList(
    body,
    (/** @type {Job} */ job) => job.id,
    (job) => jobRow(job, isShort),
  );
  return { element, show: (/** @type {Job[]} */ jobs) => list.show(jobs) };
}

/**
 * @param {Job} first
 * @param {boolean} isShort
 */
function jobRow(first, isShort) {
  const sub = h("span", { class: "sub" });
  const link = jobLink(first.id, jobTitle(first));
  const state = stateBadge();
  const progress = progressBar();
  const words = h("small");
  const runs = h("td", { class: "number", "data-label": "Running" });
  const failed = h("td", { class: "number", "data-label": "Failed" });
  const left = h("td", { class: "number", "data-label": "Remaining" });
  const submitted = ago(first.created_at);
  const row = h(
    "tr",
    { "data-job": first.id },
    h("td", { class: "grow" }, h("div", null, link, sub)),
    cell("State", "", state.element),
    cell("Progress", "wide", h("div", { class: "progress-cell" }, progress.element, words)),
    !isShort && runs,
    failed,
    left,
    !isShort && cell("Submitted", "number", submitted),
  );
  const update = (/** @type {Job} */ job) => {
    const { counts } = job;
    setText(link.lastElementChild ?? link, jobTitle(job));
    state.update(job.state);
    progress.update(counts, job.progress, jobTitle(job));
    setText(words, `${percent(job.progress)} · ${count(endedOf(counts))} of ${count(counts.total)}`);
    setText(runs, count(counts.running));
    refill(failed, String(counts.failed), () =>
      counts.failed === 0
        ? h("span", { class: "muted" }, "0")
        : h("a", { class: "error-text", href: href(["jobs", job.id, "failed"]) }, count(counts.failed)),
    );
    setText(left, isFinal(job.state) ? "–" : eta(job.eta_ms));
    setAgo(submitted, job.created_at);
    setText(sub, subText(job));
  };
  return { element: row, update };
}

/** @param {Job} job */
function subText(job) {
  const why = job.counts.running === 0 && !isFinal(job.state) ? becauseShort(job.waiting_because) : "";
  const kind = `${job.kind} · ${shortId(job.id)}`;
  if (job.state === "failed" && job.error) return `${kind} · ${job.error}`;
  return why ? `${kind} · ${why}` : kind;
}
