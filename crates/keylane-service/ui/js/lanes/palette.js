// Gives each job one of ten colours, the same everywhere on the page. When there are more jobs than colours,
// the one that was not seen for longest gives its own away.

export const COLOURS = 10;

/** @type {Map<string, {index: number, seen: number}>} */
const given = new Map();
let clock = 0;

/**
 * The number of a job's colour: `--job-0` to `--job-9` in the style sheet.
 * @param {string} job
 */
export function colourOf(job) {
  clock += 1;
  const known = given.get(job);
  if (known) {
    known.seen = clock;
    return known.index;
  }
  const index = given.size < COLOURS ? given.size : takeOldest();
  given.set(job, { index, seen: clock });
  return index;
}

function takeOldest() {
  let oldest = "";
  for (const [job, { seen }] of given) {
    if (oldest === "" || seen < /** @type {{seen: number}} */ (given.get(oldest)).seen) oldest = job;
  }
  const { index } = /** @type {{index: number}} */ (given.get(oldest));
  given.delete(oldest);
  return index;
}

/**
 * The colours as the theme has them now, for a canvas.
 * @param {Element} element
 */
export function themeColours(element) {
  const style = getComputedStyle(element);
  const read = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    jobs: Array.from({ length: COLOURS }, (_, index) => read(`--job-${index}`)),
    onBar: read("--on-bar"),
    text: read("--text"),
    muted: read("--muted"),
    line: read("--line"),
    surface: read("--surface"),
    stripe: read("--stripe"),
    idle: read("--idle"),
    failed: read("--failed"),
    focus: read("--focus"),
    font: style.fontFamily,
  };
}

/** @typedef {ReturnType<typeof themeColours>} Colours */
