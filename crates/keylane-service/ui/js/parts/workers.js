// Remote workers: what each of them runs, and when it was heard of last.

import { call } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { count } from "../format.js";
import { href } from "../route.js";
import { ago, cell, empty, failure, keyLinks, table } from "./small.js";

/**
 * @typedef {import("../types.js").Worker} Worker
 * @typedef {import("../types.js").WorkerLease} WorkerLease
 */

const COLUMNS = ["Worker", "Token", "Kinds", ">Waiting requests", ">Leases", "Oldest leases", "Last contact"];

/** Number of workers that are shown. */
const LIMIT = 100;

/** Number of leases that are shown of each worker. */
const SHOWN = 3;

/**
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
export async function showWorkers(place, signal) {
  try {
    /** @type {{items: Worker[], next_cursor?: string}} */
    const { items, next_cursor: more } = await call(`v1/workers?limit=${LIMIT}`, { signal });
    refill(place, JSON.stringify([items, more]), () => {
      if (items.length === 0)
        return [
          empty("No remote workers", h("p", null, "Remote workers lease subtasks of kinds that are configured for them.")),
        ];
      const { element, body } = table("Remote workers", COLUMNS, "is-cards");
      body.append(...items.map(row));
      const hint = more && h("p", { class: "hint" }, `The first ${LIMIT} workers. The API has the others.`);
      return hint ? [element, hint] : [element];
    });
  } catch (error) {
    if (!signal.aborted)
      fill(
        place,
        failure(/** @type {Error} */ (error), () => showWorkers(place, signal)),
      );
  }
}

/** @param {Worker} worker */
function row({ name, token, kinds, waiting, leases, running, last_contact: contact }) {
  const kindLinks = kinds.flatMap((kind) => [h("a", { href: href(["jobs"], { kind }) }, kind), " "]);
  return h(
    "tr",
    { "data-worker": name ?? "" },
    h("td", null, name ?? h("span", { class: "muted" }, "no name")),
    cell("Token", "", token ?? "not known since the restart"),
    cell("Kinds", "", ...kindLinks),
    cell("Waiting requests", "number", count(waiting)),
    cell("Leases", "number", count(leases)),
    cell("Oldest leases", "", ...running.slice(0, SHOWN).map(lease)),
    cell("Last contact", "", ago(contact)),
  );
}

/** @param {WorkerLease} lease */
function lease({ job, kind, number, keys, shared_keys, since }) {
  return h(
    "div",
    null,
    h("a", { href: href(["jobs", job, "subtasks", String(number)]) }, `${kind} ${number}`),
    " ",
    ...keyLinks({ keys, shared_keys }),
    h("span", { class: "sub" }, "for ", ago(since, "")),
  );
}
