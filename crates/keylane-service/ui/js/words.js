// Labels and help texts for the states, reasons, rules and outcomes of the API.

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
  superseded: "Superseded",
  waiting: "Waiting",
  ready: "Ready",
  backing_off: "Backing off",
  open: "Open",
  stopped: "Stopped",
};

/** @type {Record<string, string>} */
const STATE_HELP = {
  scheduled: "Its start time is in the future, or another job has to end first",
  queued: "It has not started",
  running: "It has started",
  paused: "It starts nothing more until it is resumed",
  cancelling: "It was cancelled, and running subtasks have not ended",
  succeeded: "It has succeeded",
  failed: "It has failed for good",
  cancelled: "It was cancelled",
  skipped: "An operator skipped it",
  superseded: "A later subtask of its key has replaced it",
  waiting: "It waits for a key, a start time or an operator",
  ready: "It waits only for a slot",
  backing_off: "It waits for its next attempt",
  open: "Its subtasks run one after another",
  stopped: "A subtask failed for good, and its kind stops the key then",
};

/** @type {Record<string, string>} */
const REASONS = {
  key_order: "Behind earlier subtasks of its key",
  key_rate_limited: "Its key's rate is used up",
  key_limit: "Its key is at its limit",
  barrier: "At a barrier of its job",
  no_slot: "No free slot",
  priority: "Jobs of a higher priority come first",
  not_admitted: "Not admitted yet",
  starting: "Starts now",
  entering: "Its job is entering the order",
  no_kind: "Its kind is not configured",
  damaged: "The job is damaged",
  behind_damaged: "Behind a damaged job",
  kind_paused: "Its kind is paused",
  kind_at_limit: "Its kind is at its concurrency limit",
  no_worker: "No remote worker asks for it",
  disk_full: "The server's disk is full",
  kind_rate_limited: "Its kind's rate is used up",
  tenant_at_limit: "Its tenant is at its limit",
  tenant_rate_limited: "Its tenant's rate is used up",
  backing_off: "Waits for its next attempt",
  job_paused: "The job is paused",
  key_paused: "The key is paused",
  key_stopped: "The key is stopped",
  scheduled: "Its start time is in the future",
  after_job: "Another job has to end first",
  split: "The split step is not finished",
  fan_in: "The fan-in step waits for other subtasks",
  draining: "The server is stopping",
};

/** @type {Record<string, {name: string, text: string}>} */
const RULES = {
  keep: { name: "Keep", text: "A job with pending work and no slot gets one." },
  aged: { name: "Aged", text: "A job that had only one slot for too long gets another one." },
  admit: { name: "Admit", text: "The first waiting job starts." },
  least: { name: "Least", text: "The job with the least remaining work gets the spare slots." },
};

/** @type {Record<string, string>} */
const OUTCOMES = {
  succeeded: "succeeded",
  failed: "failed for good",
  retry: "failed, retried",
  cancelled: "cancelled",
  lost: "lost",
};

export const RULE_NAMES = Object.keys(RULES);

/** @param {string} name */
const plain = (name) => {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
};

// Codes of a later server that this page does not know are shown as they are.
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
  "superseded",
];

/** @param {string} state */
export const isFinal = (state) => state === "succeeded" || state === "failed" || state === "cancelled";
