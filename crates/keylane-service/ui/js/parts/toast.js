// Says in a corner what came of a press: for as long as it takes to read, or until it is closed if it failed.

import { ApiError } from "../api.js";
import { h } from "../dom.js";
import { icon } from "../icons.js";

const SHOWN_MS = 6_000;
const said = h("div", { class: "toasts", role: "status" });

/** Where they are shown. */
export function toasts() {
  return said;
}

/**
 * @param {string} text
 * @param {"ok" | "failed"} [how]
 */
export function toast(text, how = "ok") {
  const close = h(
    "button",
    { type: "button", class: "icon-button", "aria-label": "Close this message", onclick: () => one.remove() },
    icon("cancel"),
  );
  const one = h("div", { class: "toast", "data-how": how }, icon(how), h("p", null, text), close);
  said.append(one);
  if (how === "ok") setTimeout(() => one.remove(), SHOWN_MS);
}

/**
 * Does something that was asked for, and says how it went.
 * @param {() => Promise<unknown>} work
 * @param {string} done
 */
export async function attempt(work, done) {
  try {
    await work();
    toast(done);
    return true;
  } catch (error) {
    toast(reasonOf(error), "failed");
    return false;
  }
}

/** @param {unknown} error */
export function reasonOf(error) {
  if (!(error instanceof ApiError)) return String(error);
  const places = (error.problem.errors ?? []).map(({ pointer, detail }) => `${pointer || "/"}: ${detail}`);
  return [error.message, ...places].join(" ");
}

/**
 * @param {string} text
 * @param {string} what
 */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied`);
  } catch {
    // Without a secure origin there is no clipboard: the text is shown, to be taken by hand.
    toast(text);
  }
}
