// What failed for good in a job, together with what failed for the same reason.

import { fill, h } from "../dom.js";
import { failedOf, groupByError } from "../failed.js";
import { plural } from "../format.js";
import { soon } from "../pace.js";
import { retryJob } from "../parts/actions.js";
import { failedGroup } from "../parts/failedgroup.js";
import { button, empty, failure, panel, skeleton } from "../parts/small.js";

/**
 * @param {import("../main.js").View} view
 * @param {import("../types.js").Job} job
 * @param {HTMLElement} body
 * @param {() => void} reload
 */
export function showFailedPart({ app, signal }, job, body, reload) {
  const place = h("div", null, skeleton());
  const side = h("div");
  let shown = "";
  const load = async () => {
    try {
      const { items, isAll } = await failedOf(job.id, signal);
      const state = JSON.stringify(items.map(({ number, attempts }) => [number, attempts]));
      if (state === shown) return;
      shown = state;
      const canRetry = items.length > 0 && !app.version?.read_only;
      fill(
        side,
        canRetry &&
          button("Retry failed…", "retry", async () => (await retryJob(job, "failed", items.length)) && reload()),
      );
      if (items.length === 0) fill(place, empty("No subtask of this job has failed"));
      else
        fill(
          place,
          groupByError(items).map((group) => failedGroup(job.id, group)),
          !isAll && h("p", { class: "panel-foot" }, `The first ${plural(items.length, "subtask")}; there are more.`),
        );
    } catch (error) {
      if (!signal.aborted) fill(place, failure(/** @type {Error} */ (error), load));
    }
  };
  fill(body, panel("Failed for good", { side }, place));
  app.live.on(
    "*",
    soon(() => !signal.aborted && load(), 700),
    signal,
  );
  load();
}
