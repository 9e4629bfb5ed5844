// Starts Debian's Chromium, or the one that CHROMIUM names, and opens pages that report what went wrong on them.

import { existsSync } from "node:fs";

import { chromium } from "playwright-core";

// The one without windows takes half the processor time.
const PROGRAMS = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const DESKTOP = { width: 1360, height: 900 };
export const PHONE = { width: 390, height: 844 };

export function startBrowser() {
  const executablePath = process.env.CHROMIUM ?? PROGRAMS.find((path) => existsSync(path)) ?? PROGRAMS[0];
  return chromium.launch({ executablePath, headless: true, args: FLAGS });
}

/**
 * A page in a context of its own. `problems` has what the console said of errors, among them each breach of the
 * content security policy, and each request to another host.
 * @param {import("playwright-core").Browser} browser
 * @param {{url: string, size?: {width: number, height: number}, theme?: "light" | "dark", options?: import("playwright-core").BrowserContextOptions}} wanted
 */
export async function openPage(browser, { url, size = DESKTOP, theme = "light", options = {} }) {
  const context = await browser.newContext({
    viewport: size,
    colorScheme: theme,
    permissions: ["clipboard-read", "clipboard-write"],
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  /** @type {string[]} */
  const problems = [];
  const host = new URL(url).host;
  page.on(
    "console",
    (message) => message.type() === "error" && problems.push(`${message.text()} (${message.location().url})`),
  );
  page.on("pageerror", (error) => problems.push(error.stack ?? error.message));
  page.on("request", (request) => new URL(request.url()).host !== host && problems.push(`asked ${request.url()}`));
  await page.goto(url);
  return { page, context, problems };
}
