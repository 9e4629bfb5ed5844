// What failed for good anywhere: by job, by reason, with a way to try it again.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { failedOf, groupByError } from "../failed.js";
import { count, jobTitle, newestFirst, plural } from "../format.js";
import { soon } from "../pace.js";
import { retryJob } from "../parts/actions.js";
import { failedGroup } from "../parts/failedgroup.js";
import { pageHead } from "../parts/page.js";
import { button, empty, failure, jobLink, panel, skeleton, stateBadge } from "../parts/small.js";
import { href } from "../route.js";

/** @typedef {import("../types.js").Job} Job */

const MOST_JOBS = 20;

/** @param {import("../main.js").View} view */
export function showFailures({ app, root, signal, title }) {
  title("Failures");
  const place = h("div", { class: "stack" }, panel("Failed for good", {}, skeleton()));
  fill(root, pageHead("Failures").element, place);
  let shown = "";
  const load = async () => {
    try {
      const jobs = await jobsWithFailures(signal);
      const state = JSON.stringify(jobs.map(({ id, counts, state: how }) => [id, counts.failed, how]));
      if (state === shown || signal.aborted) return;
      const panels = await Promise.all(jobs.map((job) => failedJob(app, job, signal, load)));
      if (signal.aborted) return;
      shown = state;
      for (const job of jobs) app.model.learn(job);
      if (jobs.length === 0)
        fill(
          place,
          panel(
            "Failed for good",
            {},
            empty(
              "Nothing has failed",
              h(
                "p",
                null,
                "Subtasks that failed in all their attempts appear here, grouped by reason.",
              ),
            ),
          ),
        );
      else fill(place, panels);
    } catch (error) {
      if (!signal.aborted && shown === "")
        fill(place, panel("Failed for good", {}, failure(/** @type {Error} */ (error), load)));
    }
  };
  // Under load much fails at once, and is shown at once.
  const reload = soon(() => !signal.aborted && load(), 1_000);
  for (const event of ["subtask_failed", "job_ended", "job_purged", "job_changed"]) app.live.on(event, reload, signal);
  app.live.on("reset", load, signal);
  load();
}

/** @param {AbortSignal} signal */
async function jobsWithFailures(signal) {
  const states = ["failed", "running", "paused", "cancelled"];
  const pages = await Promise.all(states.map((state) => get("v1/jobs", { state, limit: MOST_JOBS }, signal)));
  /** @type {Job[]} */
  const jobs = pages.flatMap((page) => page.items);
  return jobs
    .filter((job) => job.counts.failed > 0)
    .sort(newestFirst)
    .slice(0, MOST_JOBS);
}

/**
 * @param {import("../main.js").App} app
 * @param {Job} job
 * @param {AbortSignal} signal
 * @param {() => void} reload
 */
async function failedJob(app, job, signal, reload) {
  const { items, isAll } = await failedOf(job.id, signal);
  const { failed } = job.counts;
  const retry =
    !app.version?.read_only &&
    button("Retry failed…", "retry", async () => (await retryJob(job, "failed", failed)) && reload(), {
      "aria-label": `Retry failed subtasks of ${jobTitle(job)}`,
    });
  const one = panel(jobTitle(job), {
    side: [
      h("span", { class: "hint" }, `${count(failed)} of ${plural(job.counts.total, "subtask")} failed`),
      stateBadge(job.state).element,
      retry,
    ],
  });
  one.querySelector("h2")?.replaceChildren(jobLink(job.id, jobTitle(job)));
  one.append(...groupByError(items).map((group) => failedGroup(job.id, group)));
  if (!isAll)
    one.append(
      h(
        "p",
        { class: "panel-foot" },
        h("a", { href: href(["jobs", job.id, "failed"]) }, "All failed subtasks of this job"),
      ),
    );
  return one;
}
