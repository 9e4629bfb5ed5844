// Starts the page: the stream, the shell, and the view that belongs to the address.

import { get, onUnauthorized } from "./api.js";
import { fill, h } from "./dom.js";
import { listenToKeys } from "./keyboard.js";
import { Live } from "./live.js";
import { Model } from "./model.js";
import { empty, keepAges } from "./parts/small.js";
import { askForToken } from "./parts/token.js";
import { href, parseRoute } from "./route.js";
import { makeShell, togglePause } from "./shell.js";
import { apply } from "./theme.js";
import { showAllocation } from "./views/allocation.js";
import { showAudit } from "./views/audit.js";
import { showFailures } from "./views/failures.js";
import { showHistory } from "./views/history.js";
import { showJob } from "./views/job.js";
import { showJobs } from "./views/jobs.js";
import { showKey } from "./views/key.js";
import { showKeys } from "./views/keys.js";
import { showOverview } from "./views/overview.js";
import { showSchedules } from "./views/schedules.js";
import { showServer } from "./views/server.js";
import { showSubmit } from "./views/submit.js";
import { showSubtask } from "./views/subtask.js";

/**
 * @typedef {object} App
 * @property {Live} live
 * @property {Model} model
 * @property {import("./types.js").Version | null} version
 *
 * @typedef {object} View what a view gets to be shown with
 * @property {App} app
 * @property {HTMLElement} root
 * @property {string[]} path the parts of the address behind the view's own name
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal aborted when another view takes its place
 * @property {(title: string) => void} title
 */

/** @type {Record<string, (view: View) => void>} */
const VIEWS = {
  "": showOverview,
  jobs: showJobs,
  job: showJob,
  subtask: showSubtask,
  keys: showKeys,
  key: showKey,
  failures: showFailures,
  allocation: showAllocation,
  history: showHistory,
  schedules: showSchedules,
  audit: showAudit,
  server: showServer,
  submit: showSubmit,
};

const live = new Live("v1/events?include=summary,timeline");
/** @type {App} */
const app = { live, model: new Model(live), version: null };
let current = new AbortController();

apply();
onUnauthorized(askForToken);
keepAges(() => app.model.clockOffset);
const shell = makeShell(app);
listenToKeys({ togglePause: () => togglePause(app) });
document.addEventListener("selectionchange", () => live.setPaused("selection", isTextSelected()));
addEventListener("hashchange", () => navigate(true));
start();

async function start() {
  navigate(false);
  const [version] = await Promise.allSettled([get("version"), app.model.load()]);
  live.start();
  if (version.status !== "fulfilled") return;
  app.version = version.value;
  shell.showVersion();
  // What can be done depends on whether changes are allowed.
  if (app.version?.read_only) navigate(false);
}

/** @param {boolean} takesFocus */
function navigate(takesFocus) {
  current.abort();
  current = new AbortController();
  const { path, query } = parseRoute(location.hash);
  const { name, rest } = viewOf(path);
  const root = h("div", { class: "view" });
  fill(shell.main, root);
  shell.mark(path[0] ?? "");
  const view = VIEWS[name];
  const title = (/** @type {string} */ text) => {
    document.title = `${text} · Keylane`;
  };
  if (view) view({ app, root, path: rest, query, signal: current.signal, title });
  else {
    title("No such page");
    fill(
      root,
      h("h1", { tabindex: -1 }, "No such page"),
      empty("There is nothing here", h("p", null, h("a", { href: href([]) }, "Go to the overview"))),
    );
  }
  if (!takesFocus) return;
  scrollTo(0, 0);
  const heading = root.querySelector("h1");
  if (heading instanceof HTMLElement) heading.focus();
}

/**
 * `jobs/ID` is a job, and `jobs/ID/subtasks/7` a subtask; `jobs/ID/results` is a job too, with that part open.
 * @param {string[]} path
 */
function viewOf(path) {
  const [name = "", ...rest] = path;
  if (name === "jobs" && rest.length === 3 && rest[1] === "subtasks") return { name: "subtask", rest };
  if (name === "jobs" && rest.length > 0) return { name: "job", rest };
  if (name === "keys" && rest.length > 0) return { name: "key", rest };
  return { name: ["job", "key", "subtask"].includes(name) ? "none" : name, rest };
}

function isTextSelected() {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.toString().trim() !== "";
}
