// Servers that share the store in a database: which of them is the owner, and when each was there last.

import { call } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { ago, cell, failure, panel, table } from "./small.js";

/** @typedef {import("../types.js").Node} Node */

/**
 * Shows the servers in a panel; nothing if the store is in a file.
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
export async function showNodes(place, signal) {
  try {
    /** @type {{items: Node[]}} */
    const { items } = await call("v1/nodes", { signal });
    refill(place, JSON.stringify(items), () => {
      if (items.length === 0) return [];
      const list = h("div", null);
      const { element, body } = table("Servers", ["Server", "Role", "Version", "Last contact"], "is-cards");
      body.append(...items.map(row));
      list.append(element);
      return [panel("Servers", {}, list)];
    });
  } catch (error) {
    if (!signal.aborted)
      fill(
        place,
        failure(/** @type {Error} */ (error), () => showNodes(place, signal)),
      );
  }
}

/** @param {Node} node */
function row({ address, version, owner, last_contact: contact }) {
  return h(
    "tr",
    null,
    h("td", null, address),
    cell("Role", "", owner ? "owner" : "waits"),
    cell("Version", "", version),
    cell("Last contact", "", ago(contact)),
  );
}
