// What to do on a server that has nothing yet: a line to copy that submits the first job.

import { curl } from "../api.js";
import { h } from "../dom.js";
import { href } from "../route.js";
import { button, empty } from "./small.js";
import { copy } from "./toast.js";

/**
 * @param {string} kind a kind that the server has, or one to put in its place
 */
export function firstJob(kind) {
  const body = JSON.stringify({
    kind,
    subtasks: [
      { key: "customer-1", payload: { n: 1 } },
      { key: "customer-2", payload: { n: 2 } },
    ],
  });
  const line = curl("v1/jobs", { method: "POST", body });
  return empty("No jobs yet", [
    h(
      "p",
      null,
      "Subtasks of one key run one after another; those of different keys run side by side. Submit the first ones:",
    ),
    commandLine(line),
    h("p", null, "Or ", h("a", { href: href(["submit"]) }, "fill in a form"), "."),
  ]);
}

/** @param {string} line */
export function commandLine(line) {
  return h(
    "div",
    { class: "command" },
    h("pre", { tabindex: 0, "aria-label": "Command line" }, h("code", null, line)),
    button("Copy", "copy", () => copy(line, "Command")),
  );
}
