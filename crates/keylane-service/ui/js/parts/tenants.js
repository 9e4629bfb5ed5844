// Tenants: their limits, and what they have.

import { call } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { count } from "../format.js";
import { cell, failure, table } from "./small.js";

/** @typedef {import("../types.js").Tenant} Tenant */

const COLUMNS = [
  "Tenant",
  ">Jobs",
  ">Unfinished",
  ">Running",
  ">Weight",
  ">Minimum",
  "Maximum",
  "Per second",
  "Most unfinished",
];

/**
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
export async function showTenants(place, signal) {
  const again = () => showTenants(place, signal);
  try {
    /** @type {Tenant[]} */
    const tenants = (await call("v1/tenants", { signal })).items;
    refill(place, JSON.stringify(tenants), () => {
      const { element, body } = table("Tenants", COLUMNS, "is-cards");
      body.append(...tenants.map(row));
      return [element];
    });
  } catch (error) {
    if (!signal.aborted) fill(place, failure(/** @type {Error} */ (error), again));
  }
}

/** @param {Tenant} tenant */
function row(tenant) {
  const limit = (/** @type {number | undefined} */ value) => (value === undefined ? "no limit" : count(value));
  return h(
    "tr",
    { "data-tenant": tenant.name },
    h("td", null, tenant.name, tenant.configured ? null : h("span", { class: "sub" }, "not configured")),
    cell("Jobs", "number", count(tenant.jobs)),
    cell("Unfinished", "number", count(tenant.unfinished)),
    cell("Running", "number", count(tenant.running)),
    cell("Weight", "number", count(tenant.weight)),
    cell("Minimum", "number", count(tenant.min_workers)),
    cell("Maximum", "", limit(tenant.max_workers)),
    cell("Per second", "", tenant.per_second === undefined ? "no limit" : String(tenant.per_second)),
    cell("Most unfinished", "", limit(tenant.max_waiting)),
  );
}
