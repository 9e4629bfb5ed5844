// The frame of every page: navigation, state and age of the live data, and help.

import { fill, h, refill, setText } from "./dom.js";
import { age, count, short } from "./format.js";
import { icon } from "./icons.js";
import { keyHelp } from "./keyboard.js";
import { button } from "./parts/small.js";
import { isTokenMissing } from "./parts/token.js";
import { toasts } from "./parts/toast.js";
import { href } from "./route.js";
import { nextTheme, theme } from "./theme.js";

/** @typedef {import("./main.js").App} App */

const PLACES = [
  { path: "", word: "Overview", drawing: "overview" },
  { path: "jobs", word: "Jobs", drawing: "jobs" },
  { path: "keys", word: "Keys", drawing: "keys" },
  { path: "failures", word: "Failures", drawing: "failures" },
  { path: "allocation", word: "Allocation", drawing: "allocation" },
  { path: "history", word: "History", drawing: "history", isMinor: true },
  { path: "schedules", word: "Schedules", drawing: "scheduled", isMinor: true },
  { path: "audit", word: "Audit log", drawing: "table", isMinor: true },
  { path: "server", word: "Server", drawing: "server" },
];

/** Minimum time between two announcements to screen readers. */
const SAID_EVERY_MS = 5_000;

/** @param {App} app */
export function makeShell(app) {
  const main = h("main", { class: "main", id: "main", tabindex: -1 });
  const places = PLACES.map(({ path, word, drawing, isMinor }) =>
    h("li", { class: isMinor && "is-minor" }, h("a", { href: href(path ? [path] : []), "data-place": path }, icon(drawing), h("span", null, word))),
  );
  const foot = h("div", { class: "side-foot" });
  const shell = h(
    "div",
    { class: "shell" },
    h(
      "a",
      { class: "skip-link", href: "#main", onclick: (/** @type {Event} */ event) => skipTo(event, main) },
      "Skip to content",
    ),
    h(
      "nav",
      { class: "side", "aria-label": "Pages" },
      h("a", { class: "brand", href: href([]) }, h("img", { src: "ui/icon.svg", alt: "" }), "Keylane"),
      h("ul", { class: "places" }, places),
      foot,
    ),
    top(app),
    banner(app),
    main,
  );
  document.body.append(shell, toasts(), spoken(app));
  const showConnection = () => {
    shell.dataset.connection = app.live.connection;
  };
  app.live.watch(showConnection);
  showConnection();
  return {
    main,
    /** @param {string} place */
    mark(place) {
      for (const link of shell.querySelectorAll("[data-place]")) {
        if (link instanceof HTMLElement && link.dataset.place === place) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
    },
    showVersion() {
      const { version } = app;
      if (version)
        fill(foot, h("span", null, `Version ${version.version}`), version.read_only && h("span", null, "Read only"));
    },
  };
}

/**
 * @param {Event} event
 * @param {HTMLElement} main
 */
function skipTo(event, main) {
  // The part after # is the place, and not to be changed.
  event.preventDefault();
  main.focus();
}

/** @param {App} app */
function top(app) {
  const vitals = h("div", { class: "vitals" });
  const environment = h("span");
  const connection = h("span", { class: "connection" });
  const pause = h("button", { type: "button", class: "button", id: "pause", onclick: () => togglePause(app) });
  const themeButton = h(
    "button",
    { type: "button", class: "icon-button", onclick: () => nameTheme(nextTheme()) },
    icon("theme"),
  );
  const nameTheme = (/** @type {string} */ name) => {
    themeButton.setAttribute("aria-label", `Colours: ${name}. Change`);
    themeButton.title = `Colours: ${name}`;
  };
  nameTheme(theme());

  const showVitals = () => {
    const { summary } = app.model;
    if (!summary) return;
    const rate = app.model.rate();
    refill(vitals, JSON.stringify([summary.busy, summary.slots, rate, summary.ready, summary.waiting]), () => [
      h("span", null, h("b", null, `${count(summary.busy)} of ${count(summary.slots)}`), " slots"),
      h("span", null, h("b", null, rate === null ? "–" : short(rate)), " a second"),
      h("span", null, h("b", null, short(summary.ready + summary.waiting + summary.backing_off)), " pending"),
    ]);
    refill(
      environment,
      String(app.version?.environment),
      () => app.version?.environment && h("span", { class: "environment" }, app.version.environment),
    );
  };
  const showConnection = () => {
    const is = app.live.isPaused ? "paused" : app.live.connection;
    connection.dataset.is = is;
    const isPressed = app.live.isPausedBy("button");
    const words = {
      live: "Live",
      paused: app.live.isPausedBy("selection") && !isPressed ? "Paused: text selected" : "Paused",
      lost: "Connection lost",
      connecting: "Connecting",
      stopped: "Not connected",
    };
    setText(connection, words[is]);
    refill(pause, String(isPressed), () => [
      icon(isPressed ? "play" : "pause"),
      h("span", { class: "wide" }, isPressed ? "Resume" : "Pause"),
    ]);
    pause.setAttribute("aria-pressed", String(isPressed));
    pause.setAttribute("aria-label", "Pause live updates");
  };
  app.live.on("summary", showVitals);
  app.model.onLoad(showVitals, new AbortController().signal);
  app.live.watch(showConnection);
  showConnection();
  return h(
    "header",
    { class: "top" },
    environment,
    vitals,
    h("span", { class: "spring" }),
    connection,
    pause,
    h(
      "a",
      { class: "button", href: href(["submit"]), "aria-label": "Submit a job" },
      icon("submit"),
      h("span", { class: "wide" }, "Submit a job"),
    ),
    themeButton,
    h(
      "button",
      {
        type: "button",
        class: "icon-button wide",
        "aria-label": "Keyboard shortcuts",
        title: "Keyboard map (?)",
        onclick: keyHelp,
      },
      icon("help"),
    ),
  );
}

/** @param {App} app */
export function togglePause(app) {
  app.live.setPaused("button", !app.live.isPausedBy("button"));
}

/**
 * Says that the data is old, and how old, or that the server ends.
 * @param {App} app
 */
function banner(app) {
  const text = h("span");
  const retry = button("Try now", "retry", () => app.live.retryNow(), { class: "button is-small" });
  const enter = button("Enter a token", "keys", () => location.reload(), { class: "button is-small" });
  const box = h("div", { class: "banner", role: "status", hidden: true }, icon("lost"), text, retry, enter);
  const show = () => {
    const message = bannerText(app);
    box.hidden = message === null;
    enter.hidden = !isTokenMissing();
    retry.hidden = app.live.connection !== "lost" || isTokenMissing();
    box.dataset.how = app.live.connection === "lost" ? "bad" : "warn";
    if (message) setText(text, message);
  };
  app.live.watch(show);
  app.live.on("summary", show);
  setInterval(show, 1000);
  return box;
}

/** @param {App} app */
function bannerText({ live, model }) {
  if (isTokenMissing())
    return "This server requires a token. The page shows no data, or old data.";
  if (live.connection === "lost") {
    const old =
      live.heardAt === 0
        ? "No data has arrived yet."
        : `The data is ${age(Math.max(1000, Date.now() - live.heardAt))} old.`;
    const wait = Math.ceil((live.retryAt - Date.now()) / 1000);
    return `Connection lost. ${old} ${wait > 0 ? `Next try in ${wait} s.` : "Trying again…"}`;
  }
  if (model.summary?.store === "full") return "The disk is full: the server accepts no jobs until there is room.";
  if (model.summary?.store === "unavailable") return "The store cannot be written now. The server tries again each second.";
  if (model.summary?.store === "failed") return "The store has failed: see the page Server.";
  if (model.summary?.draining) return "The server is stopping and starts nothing new.";
  return null;
}

/**
 * Announces changes of the state to screen readers, at most once per interval.
 * @param {App} app
 */
function spoken(app) {
  const region = h("div", { class: "visually-hidden", "aria-live": "polite", id: "spoken" });
  let saidAt = 0;
  const say = () => {
    const { summary } = app.model;
    if (!summary || Date.now() - saidAt < SAID_EVERY_MS) return;
    saidAt = Date.now();
    const left = summary.ready + summary.waiting + summary.backing_off;
    setText(
      region,
      `${summary.busy} of ${summary.slots} slots busy, about ${short(left)} subtasks pending, ${count(summary.failed_total)} failed.`,
    );
  };
  app.live.on("summary", say);
  return region;
}
