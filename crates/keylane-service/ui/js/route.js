// The current page and its filters, in the part of the address after `#`, so that links restore them.

/**
 * @typedef {object} Route
 * @property {string[]} path without escapes
 * @property {URLSearchParams} query
 */

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  return {
    path: path
      .split("/")
      .filter((part) => part !== "")
      .map(unescapePart),
    query: new URLSearchParams(query),
  };
}

/** @param {string} part */
function unescapePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    // An invalid escape stands for itself.
    return part;
  }
}

/**
 * The address of a place.
 * @param {(string | number)[]} path
 * @param {Record<string, string | undefined> | URLSearchParams} [query] empty values are omitted
 */
export function href(path, query = {}) {
  const entries = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  const kept = entries.filter((entry) => entry[1]).map(([name, value]) => [name, String(value)]);
  const text = new URLSearchParams(kept).toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text && `?${text}`}`;
}

/**
 * The same place with other filters, without a step back to each of them.
 * @param {Record<string, string | undefined>} changes
 */
export function setQuery(changes) {
  const { path, query } = parseRoute(location.hash);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  history.replaceState(null, "", href(path, query));
}
