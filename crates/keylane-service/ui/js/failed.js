// Finds what failed for good, and puts together what failed for the same reason.

import { get, jobPath } from "./api.js";

/** @typedef {import("./types.js").Subtask} Subtask */

const MOST = 100;

/**
 * @param {string} job
 * @param {AbortSignal} signal
 * @returns {Promise<{items: Subtask[], isAll: boolean}>}
 */
export async function failedOf(job, signal) {
  const page = await get(`${jobPath(job)}/subtasks`, { state: "failed", limit: MOST }, signal);
  return { items: page.items, isAll: page.next_cursor === undefined };
}

/**
 * Errors that differ only in numbers or ids are one reason.
 * @template {Subtask} T
 * @param {T[]} items
 */
export function groupByError(items) {
  /** @type {Map<string, {error: string, items: T[]}>} */
  const groups = new Map();
  for (const item of items) {
    const error = item.outcome?.error ?? "no reason given";
    const pattern = error.replace(/\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b/gi, "…");
    const group = groups.get(pattern) ?? { error, items: [] };
    if (group.items.length > 0 && group.error !== error) group.error = pattern;
    group.items.push(item);
    groups.set(pattern, group);
  }
  return [...groups.values()].sort((a, b) => b.items.length - a.items.length);
}
