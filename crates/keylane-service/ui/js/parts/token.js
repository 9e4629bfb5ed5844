// Asks for the token that the server wants, once for all requests that were refused meanwhile.

import { setToken, token } from "../api.js";
import { h } from "../dom.js";
import { show } from "./dialog.js";

/** @type {Promise<boolean> | null} */
let asking = null;

/** Whether the user has closed the prompt: it then stays closed. */
let isDismissed = false;

export function isTokenMissing() {
  return isDismissed;
}

/** Says whether there is a token to try. */
export async function askForToken() {
  if (isDismissed) return false;
  asking ??= ask().finally(() => {
    asking = null;
  });
  return asking;
}

async function ask() {
  const wasRefused = token() !== null;
  const input = h("input", {
    type: "password",
    id: "token",
    name: "token",
    autocomplete: "off",
    required: true,
    spellcheck: "false",
  });
  const dialog = h(
    "dialog",
    { class: "dialog", "aria-labelledby": "dialog-title" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, "This server requires a token"),
      wasRefused && h("p", { class: "field-error", role: "alert" }, "The token was not accepted."),
      h("p", null, "The token is kept in this tab only, until the tab is closed."),
      h("label", { class: "field", for: "token" }, "Token", input),
      h("div", { class: "dialog-buttons" }, h("button", { class: "button is-primary", value: "yes" }, "Continue")),
    ),
  );
  const wanted = await show(dialog);
  if (wanted) setToken(input.value.trim());
  isDismissed = !wanted;
  return wanted;
}
