// Webhooks that are not delivered: their errors, and the actions to send and remove them.

import { ApiError, call, post } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { count } from "../format.js";
import { ago, button, cell, empty, failure, jobLink, table } from "./small.js";
import { attempt } from "./toast.js";

/** @typedef {import("../types.js").Webhook} Webhook */

const COLUMNS = ["Job", "Event", "State", ">Attempts", "Job ended", "Next attempt", "Receiver", "Actions"];

/** Number of webhooks that are shown. */
const LIMIT = 100;

/**
 * @param {import("../main.js").App} app
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
export async function showWebhooks(app, place, signal) {
  const again = () => showWebhooks(app, place, signal);
  try {
    /** @type {{items: Webhook[], next_cursor?: string}} */
    const { items, next_cursor: more } = await call(`v1/webhooks?limit=${LIMIT}`, { signal });
    refill(place, JSON.stringify([items, more]), () => {
      if (items.length === 0)
        return [empty("All webhooks are delivered", h("p", null, "A job with a webhook sends its end to an address."))];
      const { element, body } = table("Webhooks that are not delivered", COLUMNS, "is-cards");
      body.append(...items.map((webhook) => row(app, webhook, again)));
      const hint = more && h("p", { class: "hint" }, `Those of the newest jobs, ${LIMIT}. The API has the others.`);
      return hint ? [element, hint] : [element];
    });
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof ApiError && error.status === 403)
      return refill(place, "403", () => [empty("Not shown", h("p", null, "A token with the role operate shows them."))]);
    fill(place, failure(/** @type {Error} */ (error), again));
  }
}

/**
 * @param {import("../main.js").App} app
 * @param {Webhook} webhook
 * @param {() => void} changed
 */
function row(app, webhook, changed) {
  const { id, job, kind, event, url, state, attempts, max_attempts: most, error } = webhook;
  return h(
    "tr",
    { "data-webhook": id },
    h("td", null, jobLink(job, kind)),
    cell("Event", "", event),
    cell("State", "", state, error ? h("span", { class: "sub" }, error) : null),
    cell("Attempts", "number", `${count(attempts)} of ${count(most)}`),
    cell("Job ended", "", ago(webhook.created_at)),
    cell("Next attempt", "", webhook.next_at ? new Date(webhook.next_at).toLocaleString() : "none"),
    cell("Receiver", "", url),
    cell("Actions", "", app.version?.read_only ? "–" : actions(webhook, changed)),
  );
}

/**
 * @param {Webhook} webhook
 * @param {() => void} changed
 */
function actions({ id, kind }, changed) {
  const path = `v1/webhooks/${encodeURIComponent(id)}`;
  const act = async (/** @type {() => Promise<unknown>} */ work, /** @type {string} */ done) => {
    if (await attempt(work, done)) changed();
  };
  const small = { class: "button is-small" };
  return h(
    "div",
    { class: "actions" },
    button("Send now", "retry", () => act(() => post(`${path}/retry`), "The webhook is sent"), {
      ...small,
      "aria-label": `Send the webhook of ${kind} now`,
    }),
    button("Remove", "cancel", () => act(() => call(path, { method: "DELETE" }), "The webhook is removed"), {
      ...small,
      "aria-label": `Remove the webhook of ${kind}`,
    }),
  );
}
