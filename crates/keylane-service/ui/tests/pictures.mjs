// Takes the pictures for the documentation: node pictures.mjs folder. They take a minute, for the lanes to fill.

import { mkdir } from "node:fs/promises";

import { DESKTOP, openPage, PHONE, startBrowser } from "./browser.mjs";
import { until } from "./harness.mjs";
import { startMock } from "./mock/server.mjs";

const folder = process.argv[2] ?? "out";
/** So long that the lanes are full, and so short that something is left to do. */
const WARM_MS = 33_000;
await mkdir(folder, { recursive: true });
const browser = await startBrowser();

/** Moves over the lanes until a bar of a key that matches is lit. @param {import("playwright-core").Page} page @param {RegExp} wanted */
async function light(page, wanted) {
  const box = /** @type {{x: number, y: number, width: number, height: number}} */ (
    await page.locator(".lanes-scroll").boundingBox()
  );
  let at = 0;
  await page.getByRole("button", { name: "Pause live updates" }).click();
  await until(async () => {
    at += 3;
    await page.mouse.move(box.x + box.width * 0.8 - (at % 500), box.y + 33 + 22 * Math.floor(at / 500));
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    return wanted.test((await page.locator(".lanes-info").textContent()) ?? "");
  }, "a bar of that key");
}

const shots = [
  {
    name: "dashboard-overview",
    scene: "few",
    path: "",
    act: (/** @type {any} */ page) => light(page, /key customer-/),
  },
  { name: "dashboard-busy-dark", scene: "busy", path: "", theme: "dark" },
  { name: "dashboard-job", scene: "few", path: "jobs", job: "October invoices" },
  { name: "dashboard-allocation-dark", scene: "few", path: "allocation", theme: "dark" },
  {
    name: "dashboard-lost",
    scene: "few",
    path: "",
    act: async (/** @type {any} */ page, /** @type {any} */ mock) => (
      mock.break(),
      page.getByText(/Next try in [3-9] s/).waitFor()
    ),
  },
  { name: "dashboard-phone", scene: "few", path: "", size: PHONE },
  { name: "dashboard-empty", scene: "empty", path: "", warm: 2_000 },
];

await Promise.all(
  shots.map(async ({ name, scene, path, theme, size, act, job, warm = WARM_MS }) => {
    const mock = await startMock({ scene });
    const { page } = await openPage(browser, {
      url: `${mock.url}#/${path}`,
      size: size ?? DESKTOP,
      theme: /** @type {"light" | "dark"} */ (theme ?? "light"),
    });
    if (job) await page.getByRole("link", { name: job }).click();
    await page.waitForTimeout(warm);
    if (act) await act(page, mock);
    await page.waitForTimeout(400);
    await page.screenshot({ path: `${folder}/${name}.png` });
    await mock.close();
  }),
);
await browser.close();
process.exit();
