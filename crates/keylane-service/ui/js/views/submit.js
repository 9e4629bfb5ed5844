// A form for one job with one subtask, or with many from a list; and the same as a command.

import { call, curl, get } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { parseExact, printExact } from "../exact.js";
import { jobTitle } from "../format.js";
import { pageHead } from "../parts/page.js";
import { button, empty, panel } from "../parts/small.js";
import { copy, reasonOf, toast } from "../parts/toast.js";
import { href } from "../route.js";

/** @param {import("../main.js").View} view */
export function showSubmit({ app, root, signal, title }) {
  title("Submit a job");
  if (app.version?.read_only)
    return fill(
      root,
      pageHead("Submit a job").element,
      panel("Read only", {}, empty("This server accepts no changes over its API")),
    );
  const fields = makeFields();
  const error = h("p", { class: "field-error", role: "alert" });
  const submit = h("button", { class: "button is-primary" }, "Submit the job");
  // The same key for each try of the same job: pressed twice, it is done once.
  let idempotency = newKey();
  const form = h(
    "form",
    { class: "form", novalidate: true },
    h("div", { class: "form-row" }, fields.kind.element, fields.name.element, fields.key.element),
    fields.payload.element,
    h(
      "details",
      null,
      h("summary", null, "More"),
      h(
        "div",
        { class: "form-row" },
        fields.labels.element,
        fields.priority.element,
        fields.weight.element,
        fields.delay.element,
        fields.expires.element,
        fields.unique.element,
        fields.after.element,
        fields.webhook.element,
        fields.attempts.element,
        fields.timeout.element,
        fields.onError.element,
        fields.onFail.element,
      ),
    ),
    error,
    h(
      "div",
      { class: "actions" },
      submit,
      button("Copy as curl", "copy", () => copyCurl()),
    ),
  );
  const read = () => {
    setText(error, "");
    try {
      return bodyOf(fields);
    } catch (problem) {
      setText(error, /** @type {Error} */ (problem).message);
      return null;
    }
  };
  const copyCurl = () => {
    const body = read();
    if (body) copy(curl("v1/jobs", { method: "POST", body }), "Command");
  };
  form.addEventListener("input", () => {
    idempotency = newKey();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = read();
    if (!body) return;
    submit.disabled = true;
    try {
      let isNew = true;
      const onStatus = (/** @type {number} */ status) => {
        isNew = status === 202;
      };
      const headers = { "Idempotency-Key": idempotency };
      const job = await call("v1/jobs", { method: "POST", body, headers, onStatus });
      toast(isNew ? `${jobTitle(job)} was accepted, and is on the disk` : `It was submitted before: ${jobTitle(job)}`);
      location.hash = href(["jobs", job.id]);
    } catch (problem) {
      setText(error, reasonOf(problem));
    } finally {
      submit.disabled = false;
    }
  });
  fill(root, pageHead("Submit a job").element, panel("Job", { class: "is-form" }, form));
  offerKinds(fields.kind.input, signal);
}

function makeFields() {
  return {
    kind: field("Kind", h("select", { required: true })),
    name: field("Name", h("input", { maxlength: 200 }), "Display name"),
    key: field("Key", h("input", { maxlength: 1000 }), "Runs after all earlier subtasks with this key"),
    payload: field(
      "Payload",
      h("textarea", { spellcheck: "false" }, "{}"),
      'Any JSON. For several subtasks, a list such as {"subtasks": [{"key": "a", "payload": 1}]}.',
    ),
    labels: field("Labels", h("input", { placeholder: "team=data, run=7" }), "For filtering"),
    priority: field(
      "Priority",
      select([
        ["", "Normal"],
        ["high", "High: before the other jobs of its tenant"],
        ["low", "Low: after the other jobs of its tenant"],
      ]),
    ),
    weight: field("Weight", h("input", { type: "number", min: 1, placeholder: "1" }), "Share of spare slots"),
    delay: field("Delay", h("input", { type: "number", min: 0, placeholder: "0" }), "Seconds until it may start"),
    expires: field("Expiry", h("input", { type: "number", min: 0.001, step: "any" }), "Seconds until nothing of it starts"),
    unique: field(
      "Unique",
      h("input", { type: "number", min: 0.001, step: "any" }),
      "Seconds in which an equal job is not done again",
    ),
    after: field("After", h("input", { placeholder: "job_…, job_…" }), "Jobs that must succeed before"),
    webhook: field("Webhook", h("input", { type: "url", placeholder: "https://…" }), "Gets a signed request at its end"),
    attempts: field("Attempts", h("input", { type: "number", min: 1, placeholder: "as its kind" })),
    timeout: field(
      "Timeout",
      h("input", { type: "number", min: 0.001, step: "any", placeholder: "as its kind" }),
      "Seconds",
    ),
    onError: field(
      "When a subtask fails",
      select([
        ["", "As its kind"],
        ["finish_all", "Run all others"],
        ["fail_fast", "Cancel subtasks that have not started"],
      ]),
    ),
    onFail: field(
      "Key after a final failure",
      select([
        ["", "As its kind"],
        ["continue", "Continues"],
        ["stop_key", "Stops until an operator retries or skips the subtask"],
      ]),
    ),
  };
}

/** @param {string[][]} choices */
function select(choices) {
  return h(
    "select",
    null,
    choices.map(([value, text]) => h("option", { value }, text)),
  );
}

let fieldNumber = 0;

/**
 * @template {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} T
 * @param {string} word
 * @param {T} input
 * @param {string} [hint]
 */
function field(word, input, hint) {
  fieldNumber += 1;
  input.id = `field-${fieldNumber}`;
  const help = hint ? h("small", { id: `hint-${fieldNumber}` }, hint) : null;
  if (help) input.setAttribute("aria-describedby", help.id);
  return { input, element: h("div", { class: "field" }, h("label", { for: input.id }, word), input, help) };
}

/**
 * What the form says, as the server wants it. Throws an error in words for people.
 * @param {ReturnType<typeof makeFields>} fields
 */
function bodyOf(fields) {
  const { kind, name, key, payload, labels, priority, weight, delay, expires, unique, after } = fields;
  const { webhook, attempts, timeout, onError, onFail } = fields;
  if (!kind.input.value) throw new Error("Kind: choose one.");
  const given = payloadOf(payload.input.value);
  const isList = given !== null && typeof given === "object" && Array.isArray(given.subtasks);
  if (isList && key.input.value) throw new Error("Key: with several subtasks, set the key of each subtask.");
  const seconds = (/** @type {HTMLInputElement} */ input) =>
    input.value === "" ? undefined : Math.round(Number(input.value) * 1000);
  const whole = (/** @type {HTMLInputElement} */ input) => (input.value === "" ? undefined : Number(input.value));
  const all = {
    kind: kind.input.value,
    name: name.input.value || undefined,
    key: key.input.value || undefined,
    labels: labels.input.value.trim() === "" ? undefined : labelsOf(labels.input.value),
    priority: priority.input.value || undefined,
    weight: whole(weight.input),
    after: after.input.value.trim() === "" ? undefined : after.input.value.split(",").map((id) => id.trim()),
    webhook: webhook.input.value.trim() || undefined,
    expires_ms: seconds(expires.input),
    unique_ms: seconds(unique.input),
    delay_ms: seconds(delay.input),
    attempts: whole(attempts.input),
    timeout_ms: seconds(timeout.input),
    on_error: onError.input.value || undefined,
    on_fail: onFail.input.value || undefined,
    ...(isList ? { subtasks: given.subtasks } : { payload: given }),
  };
  return printExact(Object.fromEntries(Object.entries(all).filter((entry) => entry[1] !== undefined)));
}

/** @param {string} text */
function payloadOf(text) {
  try {
    return text.trim() === "" ? null : parseExact(text);
  } catch (error) {
    throw new Error(`Payload is not JSON: ${/** @type {Error} */ (error).message}.`);
  }
}

/** @param {string} text */
function labelsOf(text) {
  const pairs = text
    .split(",")
    .map((pair) => pair.trim())
    .filter(Boolean);
  return Object.fromEntries(
    pairs.map((pair) => {
      const [, name, value] = /^([^=:]+)[=:](.+)$/.exec(pair) ?? [];
      if (!name) throw new Error(`Labels: write “${pair}” as name=value.`);
      return [name.trim(), value.trim()];
    }),
  );
}

/**
 * @param {HTMLSelectElement} kind
 * @param {AbortSignal} signal
 */
async function offerKinds(kind, signal) {
  try {
    const { items } = await get("v1/kinds", {}, signal);
    kind.append(...items.map((/** @type {{name: string}} */ { name }) => h("option", { value: name }, name)));
  } catch (error) {
    if (!signal.aborted) toast(reasonOf(error), "failed");
  }
}

/** As random as a UUID, also where a page has no secure origin. */
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
