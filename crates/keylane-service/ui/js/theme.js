// Light, dark, or as the system has it.

const STORED = "keylane-theme";
const CHOICES = /** @type {const} */ (["system", "light", "dark"]);

/** @typedef {typeof CHOICES[number]} Theme */

/** @returns {Theme} */
export function theme() {
  const chosen = localStorage.getItem(STORED);
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

/** The next of the three. */
export function nextTheme() {
  const next = CHOICES[(CHOICES.indexOf(theme()) + 1) % CHOICES.length];
  if (next === "system") localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, next);
  apply();
  return next;
}

const system = matchMedia("(prefers-color-scheme: dark)");

export function apply() {
  const chosen = theme();
  const isDark = chosen === "system" ? system.matches : chosen === "dark";
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  // Canvases don't follow a style sheet by themselves.
  dispatchEvent(new Event("themechange"));
}

system.addEventListener("change", apply);
