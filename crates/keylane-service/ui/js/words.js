// What the server's words mean, in the words of the page.

/** @type {Record<string, string>} */
const STATES = {
  scheduled: "Scheduled",
  queued: "Queued",
  running: "Running",
  paused: "Paused",
  cancelling: "Cancelling",
  succeeded: "Succeeded",
  failed: "Failed",
  cancelled: "Cancelled",
  skipped: "Skipped",
  waiting: "Waiting",
  ready: "Ready",
  backing_off: "Backing off",
  open: "Open",
  stopped: "Stopped",
};

/** @type {Record<string, string>} */
const STATE_HELP = {
  scheduled: "Its time has not come",
  queued: "Nothing of it has begun",
  running: "Something of it has begun",
  paused: "Nothing more begins until it is resumed",
  cancelling: "It was cancelled, and what runs has not ended",
  succeeded: "All has ended well",
  failed: "It has failed for good",
  cancelled: "It was cancelled",
  skipped: "Somebody skipped it",
  waiting: "It waits for a key, for a time, or because somebody holds it",
  ready: "It could begin, if there were a slot",
  backing_off: "It waits for its next attempt",
  open: "Its subtasks go on one after another",
  stopped: "A subtask failed for good, and the key was to stop then",
};

/** @type {Record<string, string>} */
const REASONS = {
  key_order: "Behind others of its key",
  no_slot: "No free slot",
  not_admitted: "Not admitted yet",
  starting: "Starts now",
  entering: "Its job enters the order in parts",
  no_kind: "Its kind is not configured",
  damaged: "The job is damaged",
  behind_damaged: "Behind a damaged job",
  kind_at_limit: "Its kind is at its limit",
  no_worker: "No worker asks for it",
  disk_full: "The server's disk is full",
  kind_rate_limited: "Its kind's rate is used up",
  backing_off: "Waits for its next attempt",
  job_paused: "The job is paused",
  key_paused: "The key is paused",
  key_stopped: "The key has stopped",
  scheduled: "Its time has not come",
  split: "It is being split",
  fan_in: "Its results are being put together",
  draining: "The server is about to stop",
};

/** @type {Record<string, {name: string, text: string}>} */
const RULES = {
  keep: { name: "Keep", text: "A job with something to do and no slot keeps at least one." },
  aged: { name: "Aged", text: "A job was held at one slot for too long, and gets another." },
  admit: { name: "Admit", text: "The first of those that wait begins." },
  least: { name: "Least", text: "The job with the least left to do gets what is spare." },
};

/** @type {Record<string, string>} */
const OUTCOMES = {
  succeeded: "succeeded",
  failed: "failed for good",
  retry: "failed, tried again",
  cancelled: "cancelled",
  lost: "was lost",
};

export const RULE_NAMES = Object.keys(RULES);

/** @param {string} name */
const plain = (name) => {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
};

// What a later server says and this page does not know is shown as it is.
/** @param {string} state */
export const stateWord = (state) => STATES[state] ?? plain(state);
/** @param {string} state */
export const stateHelp = (state) => STATE_HELP[state] ?? "";
/** @param {string} reason */
export const reasonWord = (reason) => REASONS[reason] ?? plain(reason);
/** @param {string} rule */
export const ruleWord = (rule) => RULES[rule]?.name ?? plain(rule);
/** @param {string} rule */
export const ruleHelp = (rule) => RULES[rule]?.text ?? "";
/** @param {string | undefined} outcome */
export const outcomeWord = (outcome) => (outcome ? (OUTCOMES[outcome] ?? outcome) : "runs");

/** @type {import("./types.js").JobState[]} */
export const JOB_STATES = [
  "running",
  "queued",
  "scheduled",
  "paused",
  "cancelling",
  "failed",
  "succeeded",
  "cancelled",
];
/** @type {import("./types.js").SubtaskState[]} */
export const SUBTASK_STATES = [
  "running",
  "ready",
  "waiting",
  "backing_off",
  "failed",
  "succeeded",
  "cancelled",
  "skipped",
];

/** @param {string} state */
export const isFinal = (state) => state === "succeeded" || state === "failed" || state === "cancelled";
