// What the commands of a subtask's attempts said, the newest attempt first.

import { h } from "../dom.js";
import { bytes } from "../format.js";
import { longText } from "./payload.js";
import { ago, stateBadge } from "./small.js";

/** @typedef {import("../types.js").AttemptLog} AttemptLog */

/** @param {AttemptLog[]} logs */
export function attemptLogs(logs) {
  return logs.toReversed().map(attemptLog);
}

/** @param {AttemptLog} log */
function attemptLog({ attempt, state, started_at: began, left_out_bytes: leftOut, text }) {
  const title = `Log of attempt ${attempt}`;
  return h(
    "section",
    { class: "panel", "aria-label": title },
    longText(
      text,
      title,
      stateBadge(state).element,
      h("span", null, "began ", ago(began)),
      leftOut > 0 ? h("span", { class: "muted" }, `without the first ${bytes(leftOut)}`) : null,
    ),
  );
}
