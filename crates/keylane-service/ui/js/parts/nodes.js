// Servers that share the store in a database: which of them is the owner, when each was there last, and the actions to drain and resume one.

import { call, post } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { confirm } from "./dialog.js";
import { ago, button, cell, failure, panel, table } from "./small.js";
import { attempt } from "./toast.js";

/** @typedef {import("../types.js").Node} Node */

/**
 * Shows the servers in a panel; nothing if the store is in a file.
 * @param {import("../main.js").App} app
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
export async function showNodes(app, place, signal) {
  const again = () => showNodes(app, place, signal);
  try {
    /** @type {{items: Node[]}} */
    const { items } = await call("v1/nodes", { signal });
    refill(place, JSON.stringify(items), () => {
      if (items.length === 0) return [];
      const list = h("div", null);
      const { element, body } = table("Servers", ["Server", "Role", "Version", "Last contact", "Actions"], "is-cards");
      body.append(...items.map((node) => row(app, node, again)));
      list.append(element);
      return [panel("Servers", {}, list)];
    });
  } catch (error) {
    if (!signal.aborted) fill(place, failure(/** @type {Error} */ (error), again));
  }
}

/**
 * @param {import("../main.js").App} app
 * @param {Node} node
 * @param {() => void} changed
 */
function row(app, node, changed) {
  const { address, version, owner, drained, last_contact: contact } = node;
  const role = [owner && "owner", drained && "drained"].filter(Boolean).join(", ");
  return h(
    "tr",
    null,
    h("td", null, address),
    cell("Role", "", role || "waits"),
    cell("Version", "", version),
    cell("Last contact", "", ago(contact)),
    cell("Actions", "", app.version?.read_only ? "–" : action(node, changed)),
  );
}

/**
 * @param {Node} node
 * @param {() => void} changed
 */
function action({ address, owner, drained }, changed) {
  const path = (/** @type {string} */ verb) => `v1/nodes/${verb}?address=${encodeURIComponent(address)}`;
  const resume = async () => {
    if (await attempt(() => post(path("resume")), `${address} is resumed`)) changed();
  };
  const drain = async () => {
    const sure = await confirm({
      title: `Drain ${address}?`,
      effect: [
        "It takes no more subtasks until it is resumed. What runs there may end.",
        owner
          ? "Another server takes the store over. Until then requests are refused and nothing starts."
          : "The other servers go on.",
      ],
      verb: "Drain the server",
    });
    if (sure && (await attempt(() => post(path("drain")), `${address} is drained`))) changed();
  };
  const small = { class: "button is-small" };
  return drained
    ? button("Resume", "play", resume, { ...small, "aria-label": `Resume ${address}` })
    : button("Drain…", "pause", drain, { ...small, "aria-label": `Drain ${address}` });
}
