// Sends requests to the server, and turns error responses into messages.

import { parseExact } from "./exact.js";

/** @typedef {import("./types.js").ProblemBody} ProblemBody */

const TOKEN = "keylane-token";

/** A refusal, or no answer at all. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 if there was no answer
   * @param {Partial<ProblemBody>} problem
   */
  constructor(status, problem) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

/** Kept for this tab only, and never written into an address. */
export function token() {
  return sessionStorage.getItem(TOKEN);
}

/** @param {string | null} value */
export function setToken(value) {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

/** @returns {Record<string, string>} */
export function authorization() {
  const value = token();
  return value ? { Authorization: `Bearer ${value}` } : {};
}

/** Callback for a missing token; resolves to whether a new one was entered. @type {() => Promise<boolean>} */
let askForToken = async () => false;

/** @param {() => Promise<boolean>} ask */
export function onUnauthorized(ask) {
  askForToken = ask;
}

/** Pending prompt for a token, shared by all requests that are refused at the same time. */
export function newToken() {
  return askForToken();
}

/**
 * @typedef {object} Ask
 * @property {string} [method]
 * @property {unknown} [body]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 * @property {(status: number) => void} [onStatus] called with the status of the answer
 */

/**
 * Reads `path` below the dashboard's own address, so that a proxy may add a prefix.
 * @param {string} path
 * @param {Ask} [ask]
 * @returns {Promise<any>}
 */
export async function call(path, ask = {}) {
  const response = await send(path, ask);
  if (response.status === 401 && (await newToken())) return call(path, ask);
  const text = await response.text();
  ask.onStatus?.(response.status);
  if (!response.ok) throw new ApiError(response.status, problemOf(text, response));
  return text === "" ? null : parseExact(text);
}

/**
 * @param {string} path
 * @param {Ask} ask
 */
async function send(path, { method = "GET", body, headers, signal }) {
  /** @type {Record<string, string>} */
  const content = body === undefined ? {} : { "Content-Type": "application/json" };
  try {
    return await fetch(path, {
      method,
      headers: { Accept: "application/json", ...content, ...authorization(), ...headers },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, { detail: "The server does not answer." });
  }
}

/**
 * @param {string} text
 * @param {Response} response
 * @returns {Partial<ProblemBody>}
 */
function problemOf(text, response) {
  const type = response.headers.get("Content-Type") ?? "";
  try {
    if (type.includes("json")) return JSON.parse(text);
  } catch {
    // A proxy said something else; its status has to do.
  }
  return { title: `${response.status} ${response.statusText}`.trim() };
}

/**
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} [query] empty values are omitted
 * @param {AbortSignal} [signal]
 */
export function get(path, query = {}, signal) {
  const kept = Object.entries(query).filter((entry) => entry[1] !== undefined && entry[1] !== null && entry[1] !== "");
  const text = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return call(text ? `${path}?${text}` : path, { signal });
}

/**
 * @param {string} path
 * @param {unknown} [body]
 * @param {Record<string, string>} [headers]
 */
export function post(path, body, headers) {
  return call(path, { method: "POST", body, headers });
}

/** @param {string} id */
export function jobPath(id) {
  return `v1/jobs/${encodeURIComponent(id)}`;
}

/** @param {string} key */
export function keyPath(key) {
  return `v1/keys/${encodeURIComponent(key)}`;
}

/**
 * The same as a line for a shell. The token is left out, for it should not end up in a history.
 * @param {string} path
 * @param {{method?: string, body?: string, headers?: Record<string, string>}} [ask]
 */
export function curl(path, { method = "GET", body, headers = {} } = {}) {
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const url = new URL(path, document.baseURI);
  url.hash = "";
  const all = { ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers };
  const parts = ["curl", "-sS"];
  if (method !== "GET" && !(method === "POST" && body !== undefined)) parts.push("-X", method);
  parts.push(quote(url.href));
  if (token()) parts.push("-H", '"Authorization: Bearer $KEYLANE_TOKEN"');
  for (const [name, value] of Object.entries(all)) parts.push("-H", quote(`${name}: ${value}`));
  if (body !== undefined) parts.push("--data-raw", quote(body));
  return parts.join(" ");
}
