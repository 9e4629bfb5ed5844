// How the server is: its checks, its numbers since it began, the servers that share its store, the kinds of jobs that it knows, its tenants, its remote workers, and the
// webhooks that are not delivered.

import { every, fill, h, refill } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { icon } from "../icons.js";
import { showKinds } from "../parts/kinds.js";
import { showNodes } from "../parts/nodes.js";
import { pageHead } from "../parts/page.js";
import { failure, panel, skeleton } from "../parts/small.js";
import { showWorkers } from "../parts/workers.js";
import { showTenants } from "../parts/tenants.js";
import { showWebhooks } from "../parts/webhooks.js";
import { href } from "../route.js";

const ASK_EVERY_MS = 5_000;

/** @param {import("../main.js").View} view */
export function showServer({ app, root, signal, title }) {
  title("Server");
  const health = h("div", null, skeleton(3));
  const numbers = h("dl", { class: "facts" });
  const kinds = h("div", null, skeleton(3));
  const nodes = h("div", null);
  const workers = h("div", null, skeleton(3));
  const tenants = h("div", null, skeleton(1));
  const webhooks = h("div", null, skeleton(1));
  fill(
    root,
    pageHead("Server").element,
    h(
      "div",
      { class: "stack" },
      h("div", { class: "columns" }, panel("Health", {}, health), panel("Since the start", {}, numbers)),
      nodes,
      panel("Kinds of jobs", {}, kinds),
      panel("Remote workers", {}, workers),
      panel("Tenants", {}, tenants),
      panel("Webhooks", {}, webhooks),
      h(
        "p",
        { class: "hint" },
        h("a", { href: href(["history"]) }, "History"),
        " · ",
        h("a", { href: href(["schedules"]) }, "Schedules"),
        " · ",
        h("a", { href: href(["audit"]) }, "Audit log"),
      ),
    ),
  );
  const showNumbers = () => {
    const rows = app.model.summary && numberRows(app);
    if (!rows) return fill(numbers, h("dt", null, "Loading"), h("dd", null, "–"));
    refill(numbers, JSON.stringify(rows), () =>
      rows.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
    );
  };
  app.live.on("summary", showNumbers, signal);
  app.model.onLoad(showNumbers, signal);
  showNumbers();
  every(signal, ASK_EVERY_MS, () => showHealth(health, signal));
  every(signal, ASK_EVERY_MS, () => showNodes(app, nodes, signal));
  every(signal, ASK_EVERY_MS, () => showKinds(app, kinds, signal));
  every(signal, ASK_EVERY_MS, () => showWorkers(workers, signal));
  every(signal, ASK_EVERY_MS, () => showTenants(tenants, signal));
  every(signal, ASK_EVERY_MS, () => showWebhooks(app, webhooks, signal));
}

/**
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
async function showHealth(place, signal) {
  try {
    // A response with status 503 has the details in its body, too.
    const response = await fetch("readyz", { cache: "no-store", signal, headers: { Accept: "application/json" } });
    /** @type {import("../types.js").Health} */
    const health = await response.json();
    refill(place, JSON.stringify(health), () => [
      h(
        "p",
        { class: "panel-body" },
        h(
          "span",
          { class: "state", "data-state": health.status === "ok" ? "succeeded" : "failed" },
          icon(health.status === "ok" ? "succeeded" : "failed"),
          health.status === "ok" ? "Ready for work" : "Not ready",
        ),
      ),
      h(
        "ul",
        { class: "because" },
        health.checks.map(({ name, ok, detail }) =>
          h(
            "li",
            null,
            h(
              "p",
              { class: "because-head" },
              h(
                "span",
                { class: "state", "data-state": ok ? "succeeded" : "failed" },
                icon(ok ? "ok" : "failed"),
                name,
              ),
              h("span", { class: "because-count" }, ok ? "ok" : "failed"),
            ),
            detail && h("p", { class: "because-text" }, detail),
          ),
        ),
      ),
    ]);
  } catch {
    if (!signal.aborted)
      refill(place, "none", () => failure(new Error("The server does not answer."), () => showHealth(place, signal)));
  }
}

/** @param {import("../main.js").App} app */
function numberRows({ model, version, live }) {
  const summary = /** @type {import("../types.js").Summary} */ (model.summary);
  return [
    ["Version", version ? version.version : "–"],
    ["Environment", version?.environment ?? "none given"],
    ["Changes", version?.read_only ? "read only" : "allowed"],
    ["Uptime", duration(model.now() - Date.parse(summary.started_at))],
    ["Store", `${summary.store}, ${bytes(summary.store_bytes)}`],
    ["Succeeded", count(summary.succeeded_total)],
    ["Failed for good", count(summary.failed_total)],
    ["Cancelled or skipped", count(summary.cancelled_total)],
    ["Superseded", count(summary.superseded_total)],
    ["Retried attempts", count(summary.retried_total)],
    ["WebSocket clients", count(summary.websockets)],
    ["This page", live.connection === "live" ? "live" : live.connection],
  ];
}
