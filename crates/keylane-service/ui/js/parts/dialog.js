// Asks before something is done that cannot be undone, in words that say what will happen.

import { h } from "../dom.js";

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {(Node | string)[]} effect what will happen
 * @property {string} verb what the button says: the same verb as the one that was pressed
 * @property {boolean} [isDangerous]
 * @property {HTMLElement} [field] something to choose or to fill in
 */

/**
 * @param {Question} question
 * @returns {Promise<boolean>} whether it is wanted
 */
export function confirm({ title, effect, verb, isDangerous = false, field }) {
  const yes = h("button", { class: `button ${isDangerous ? "is-danger" : "is-primary"}`, value: "yes" }, verb);
  const no = h("button", { class: "button", value: "no" }, "Keep as it is");
  // What is filled in counts only for the other button.
  no.formNoValidate = true;
  const heading = h("h2", { id: "dialog-title" }, title);
  const body = h(
    "div",
    { id: "dialog-text" },
    effect.map((part) => h("p", null, part)),
  );
  const form = h("form", { method: "dialog" }, heading, body, field, h("div", { class: "dialog-buttons" }, no, yes));
  const dialog = h(
    "dialog",
    { class: "dialog", "aria-labelledby": "dialog-title", "aria-describedby": "dialog-text" },
    form,
  );
  // A press on Enter in the dialog does what does no harm.
  no.autofocus = true;
  return show(dialog);
}

/**
 * Shows a dialog until it is closed; the focus then is where it was.
 * @param {HTMLDialogElement} dialog
 * @returns {Promise<boolean>} whether it was closed by a button of value `yes`
 */
export function show(dialog) {
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close("no");
  });
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}
