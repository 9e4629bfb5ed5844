// Finds what a job or a subtask waits for, and what that waits for, down to the causes. Nothing here draws.

/**
 * @typedef {import("./types.js").Because} Because
 * @typedef {{job: string, number?: number}} Waiting a job, or a subtask of it
 *
 * @typedef {object} WaitNode
 * @property {Waiting} of
 * @property {string} title
 * @property {string} state
 * @property {WaitEdge[]} edges
 *
 * @typedef {object} WaitEdge
 * @property {Because} because
 * @property {WaitNode} [to] what it waits for, if that is a job or a subtask and was read
 * @property {boolean} [isKnown] whether this stands elsewhere in the tree
 */

/** Maximum number of jobs and subtasks that are read, and of steps from the first one. */
export const MAX_NODES = 24;
const MAX_DEPTH = 8;

/**
 * Reads what something waits for, the nearest first.
 * @param {Waiting} first
 * @param {(of: Waiting) => Promise<Omit<WaitNode, "edges"> & {reasons: Because[]}>} read
 * @returns {Promise<{root: WaitNode, isAll: boolean}>}
 */
export async function waitTree(first, read) {
  const idOf = (/** @type {Waiting} */ { job, number }) => (number === undefined ? job : `${job}/${number}`);
  /** @type {Set<string>} */
  const seen = new Set([idOf(first)]);
  let isAll = true;
  const { reasons, ...start } = await read(first);
  /** @type {WaitNode} */
  const root = { ...start, edges: [] };
  let level = [{ node: root, reasons }];
  for (let depth = 0; level.length > 0; depth += 1) {
    /** @type {typeof level} */
    const next = [];
    for (const { node, reasons: all } of level) {
      for (const because of all) {
        /** @type {WaitEdge} */
        const edge = { because };
        node.edges.push(edge);
        if (because.job === undefined) continue;
        const of = { job: because.job, number: because.number };
        edge.isKnown = seen.has(idOf(of));
        if (edge.isKnown) continue;
        if (depth >= MAX_DEPTH || seen.size >= MAX_NODES) {
          isAll = false;
          continue;
        }
        seen.add(idOf(of));
        const { reasons: further, ...found } = await read(of);
        edge.to = { ...found, edges: [] };
        next.push({ node: edge.to, reasons: further });
      }
    }
    level = next;
  }
  return { root, isAll };
}
