// Makes elements and keeps lists of them in step with data without losing the focus in them.

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, unknown>} Attributes
 */

/**
 * An element. `on*` attributes are listeners, `class` and `data-*` are as in HTML, true is an attribute without
 * a value, and false or null is none.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(element, name, value);
  element.append(...nodes(children));
  return element;
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {unknown} value
 */
export function setAttribute(element, name, value) {
  if (typeof value === "function") {
    element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
  } else if (value === false || value === null || value === undefined) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {(Child | Child[])[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/**
 * @param {Element} parent
 * @param {...(Child | Child[])} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodes(children));
}

/**
 * Sets a text only if it differs, so that a selection stays and a screen reader does not repeat it.
 * @param {Node} node
 * @param {string | number} text
 */
export function setText(node, text) {
  const value = String(text);
  if (node.textContent !== value) node.textContent = value;
}

/**
 * Replaces the content of an element only if `state` has changed.
 * @param {Element & {shown?: string}} parent
 * @param {string} state
 * @param {() => Child | Child[]} make
 */
export function refill(parent, state, make) {
  if (parent.shown === state) return;
  parent.shown = state;
  fill(parent, make());
}

/**
 * @template T
 * @typedef {{element: HTMLElement, update: (item: T) => void}} Row
 */

/**
 * A list that is updated in place. A row that stays keeps its element, and so its focus and selection.
 * @template T
 */
export class KeyedList {
  /** @type {Map<string, Row<T>>} */
  #rows = new Map();

  /**
   * @param {HTMLElement} parent
   * @param {(item: T) => string} keyOf
   * @param {(item: T) => Row<T>} make
   */
  constructor(parent, keyOf, make) {
    this.parent = parent;
    this.keyOf = keyOf;
    this.make = make;
  }

  get size() {
    return this.#rows.size;
  }

  /** @param {T[]} items */
  show(items) {
    /** @type {Map<string, Row<T>>} */
    const next = new Map();
    for (const item of items) {
      const key = this.keyOf(item);
      const row = this.#rows.get(key) ?? this.make(item);
      row.update(item);
      next.set(key, row);
    }
    for (const [key, row] of this.#rows) if (!next.has(key)) row.element.remove();
    this.#rows = next;
    this.#place();
  }

  /** Moves only what stands elsewhere; an element that is moved loses its focus, and gets it back. */
  #place() {
    const focused = document.activeElement;
    let at = this.parent.firstElementChild;
    for (const { element } of this.#rows.values()) {
      if (element === at) at = at.nextElementSibling;
      else this.parent.insertBefore(element, at);
    }
    if (focused instanceof HTMLElement && focused !== document.activeElement && this.parent.contains(focused))
      focused.focus({ preventScroll: true });
  }
}

/**
 * Runs `work` now and then at every interval until the signal aborts; not while the page is hidden.
 * @param {AbortSignal} signal
 * @param {number} ms
 * @param {() => unknown} work
 */
export function every(signal, ms, work) {
  const timer = setInterval(() => {
    if (!document.hidden) work();
  }, ms);
  signal.addEventListener("abort", () => clearInterval(timer));
  work();
}
