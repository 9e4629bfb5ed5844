// Kinds of jobs: their limits in force, and the actions to pause and resume them.

import { call, post } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { count, duration } from "../format.js";
import { href } from "../route.js";
import { button, cell, empty, failure, stateBadge, table } from "./small.js";
import { attempt } from "./toast.js";

/** @typedef {import("../types.js").Kind} Kind */

const COLUMNS = [
  "Kind",
  "Handler",
  "State",
  ">Running",
  "Concurrency",
  "Per key",
  "Per second",
  "Attempts",
  "Timeout",
  "Kept for",
  "Steps",
  "Actions",
];

/**
 * @param {import("../main.js").App} app
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
export async function showKinds(app, place, signal) {
  const again = () => showKinds(app, place, signal);
  try {
    /** @type {Kind[]} */
    const kinds = (await call("v1/kinds", { signal })).items;
    refill(place, JSON.stringify(kinds), () => {
      if (kinds.length === 0)
        return [
          empty(
            "No kinds yet",
            h("p", null, "A kind names the handler of a job. Kinds are set in the server's configuration."),
          ),
        ];
      const { element, body } = table("Kinds of jobs", COLUMNS, "is-cards");
      body.append(...kinds.map((kind) => row(app, kind, again)));
      return [element];
    });
  } catch (error) {
    if (!signal.aborted) fill(place, failure(/** @type {Error} */ (error), again));
  }
}

/**
 * @param {import("../main.js").App} app
 * @param {Kind} kind
 * @param {() => void} changed
 */
function row(app, kind, changed) {
  const { name, handler, concurrency, max_per_key: perKey = 1, per_second_per_key: keyRate, timeout_ms: timeout } = kind;
  const steps = [kind.split && "split", kind.fan_in && "fan-in"].filter(Boolean).join(", ");
  const limit = (/** @type {number | undefined} */ value) => (value === undefined ? "no limit" : count(value));
  const overridden = kind.changed.length > 0 && `changed: ${kind.changed.map((it) => it.replaceAll("_", " ")).join(", ")}`;
  return h(
    "tr",
    { "data-kind": name },
    h(
      "td",
      null,
      h("a", { href: href(["jobs"], { kind: name }) }, name),
      overridden ? h("span", { class: "sub" }, overridden) : null,
    ),
    cell("Handler", "", handler),
    cell("State", "", kind.paused ? stateBadge("paused").element : "open", kind.pause_reason ? h("span", { class: "sub" }, kind.pause_reason) : null),
    cell("Running", "number", count(kind.running)),
    cell("Concurrency", "", limit(concurrency)),
    cell("Per key", "", keyRate === undefined ? count(perKey) : `${count(perKey)}, ${keyRate} per second`),
    cell("Per second", "", kind.per_second === undefined ? "no limit" : String(kind.per_second)),
    cell("Attempts", "", kind.attempts),
    cell("Timeout", "", timeout === undefined ? "no limit" : duration(timeout)),
    cell("Kept for", "", kind.keeps_forever ? "forever" : kind.retention_ms === undefined ? "as the server" : duration(kind.retention_ms)),
    cell("Steps", "", steps || "none"),
    cell("Actions", "", app.version?.read_only ? "–" : actions(kind, changed)),
  );
}

/**
 * @param {Kind} kind
 * @param {() => void} changed
 */
function actions({ name, paused, changed: settings }, changed) {
  const path = `v1/kinds/${encodeURIComponent(name)}`;
  const act = async (/** @type {string} */ verb, /** @type {string} */ done) => {
    if (await attempt(() => post(`${path}/${verb}`, {}), done)) changed();
  };
  const small = { class: "button is-small" };
  return h(
    "div",
    { class: "actions" },
    paused
      ? button("Resume", "play", () => act("resume", `${name} continues`), { ...small, "aria-label": `Resume ${name}` })
      : button("Pause", "pause", () => act("pause", `${name} is paused`), { ...small, "aria-label": `Pause ${name}` }),
    settings.length > 0
      ? button("Reset limits", "retry", () => act("reset", `${name} has its configured limits`), {
          ...small,
          "aria-label": `Reset the limits of ${name}`,
        })
      : null,
  );
}
