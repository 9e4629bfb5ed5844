// Reads JSON without losing digits: a number that a JavaScript number would not give back as it was written
// stays text. What a payload says is shown as it was sent.

/** A number as it was written. */
export class ExactNumber {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /true|false|null/y;
const WORDS = { true: true, false: false, null: null };

/**
 * The value of a JSON text. Throws a SyntaxError that says where it is none.
 * @param {string} text
 * @returns {any}
 */
export function parseExact(text) {
  let at = 0;

  /** @param {RegExp} pattern */
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found?.[0];
  };
  /** @param {string} wanted */
  const fail = (wanted) => {
    throw new SyntaxError(`expected ${wanted} at ${place(text, at)}`);
  };
  /** @param {string} char */
  const skip = (char) => {
    take(SPACE);
    if (text[at] !== char) return false;
    at += 1;
    return true;
  };

  /** @returns {any} */
  const value = () => {
    take(SPACE);
    const first = text[at];
    if (first === "{") return object();
    if (first === "[") return array();
    if (first === '"') return string();
    const word = take(WORD);
    if (word) return WORDS[/** @type {keyof typeof WORDS} */ (word)];
    const digits = take(NUMBER);
    return digits ? number(digits) : fail("a value");
  };
  const string = () => {
    take(SPACE);
    const quoted = take(STRING);
    return quoted ? JSON.parse(quoted) : fail("a string in double quotes");
  };
  /** @returns {any[]} */
  const array = () => {
    at += 1;
    /** @type {any[]} */
    const items = [];
    if (skip("]")) return items;
    do items.push(value());
    while (skip(","));
    return skip("]") ? items : fail("a comma or ]");
  };
  const object = () => {
    at += 1;
    /** @type {Record<string, any>} */
    const fields = {};
    if (skip("}")) return fields;
    do {
      const name = string();
      if (!skip(":")) fail("a colon");
      // A field called __proto__ is a field like any other.
      Object.defineProperty(fields, name, { value: value(), enumerable: true, configurable: true, writable: true });
    } while (skip(","));
    return skip("}") ? fields : fail("a comma or }");
  };

  const result = value();
  take(SPACE);
  if (at !== text.length) fail("the end");
  return result;
}

/** @param {string} text */
function number(text) {
  const value = Number(text);
  return String(value) === text ? value : new ExactNumber(text);
}

/**
 * @param {string} text
 * @param {number} at
 */
function place(text, at) {
  const before = text.slice(0, at).split("\n");
  return `line ${before.length}, column ${before[before.length - 1].length + 1}`;
}

/**
 * A value as indented JSON, with exact numbers as they were written.
 * @param {unknown} value
 * @param {string} [indent]
 * @returns {string}
 */
export function printExact(value, indent = "") {
  if (value instanceof ExactNumber) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = `${indent}  `;
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((item) => printExact(item, inner))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${printExact(item, inner)}`);
  const [open, close] = isList ? "[]" : "{}";
  const short = `${open}${parts.join(", ")}${close}`;
  if (parts.length === 0 || (short.length <= 60 && !short.includes("\n"))) return short;
  return `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${indent}${close}`;
}
