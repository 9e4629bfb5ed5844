// Takes pictures of the dashboard to look at: node look.mjs [folder]

import { mkdir } from "node:fs/promises";

import { DESKTOP, openPage, PHONE, startBrowser } from "./browser.mjs";
import { startMock } from "./mock/server.mjs";

const folder = process.argv[2] ?? "out";
const only = process.argv[3];
await mkdir(folder, { recursive: true });
const browser = await startBrowser();

/** @type {{name: string, scene: string, path: string, theme?: "light" | "dark", size?: {width: number, height: number}, wait?: number, act?: (page: import("playwright-core").Page, mock: any) => Promise<unknown>}[]} */
const SHOTS = [
  { name: "empty", scene: "empty", path: "" },
  { name: "few", scene: "few", path: "", wait: 9000 },
  { name: "few-dark", scene: "few", path: "", theme: "dark", wait: 9000 },
  { name: "few-phone", scene: "few", path: "", size: PHONE, wait: 6000 },
  { name: "busy", scene: "busy", path: "", wait: 12000, act: hover },
  { name: "busy-dark", scene: "busy", path: "", theme: "dark", wait: 12000, act: hover },
  { name: "jobs", scene: "few", path: "jobs", wait: 4000 },
  { name: "jobs-phone", scene: "few", path: "jobs", size: PHONE, theme: "dark", wait: 3000 },
  {
    name: "job",
    scene: "few",
    path: "jobs",
    wait: 3000,
    act: async (page) => {
      await page.getByRole("link", { name: "October invoices" }).click();
      await page.waitForTimeout(5000);
    },
  },
  {
    name: "job-phone",
    scene: "few",
    path: "jobs",
    size: PHONE,
    wait: 2000,
    act: async (page) => {
      await page.getByRole("link", { name: "Catalogue import" }).click();
      await page.waitForTimeout(3000);
    },
  },
  {
    name: "subtasks",
    scene: "few",
    path: "jobs",
    wait: 2000,
    act: async (page) => {
      await page.getByRole("link", { name: "October invoices" }).click();
      await page.getByRole("link", { name: "Subtasks" }).click();
      await page.waitForTimeout(1500);
    },
  },
  { name: "keys", scene: "few", path: "keys", wait: 5000 },
  { name: "keys-phone", scene: "few", path: "keys", size: PHONE, wait: 4000 },
  {
    name: "skip",
    scene: "few",
    path: "keys",
    wait: 5000,
    theme: "dark",
    act: async (page) => {
      await page.locator("[data-action='Skip head']").first().click();
      await page.waitForTimeout(500);
    },
  },
  { name: "failures", scene: "few", path: "failures", wait: 5000 },
  { name: "allocation", scene: "few", path: "allocation", wait: 12000 },
  { name: "allocation-dark", scene: "busy", path: "allocation", theme: "dark", wait: 12000 },
  { name: "history", scene: "few", path: "history", wait: 6000 },
  { name: "history-dark", scene: "few", path: "history?span=24h", theme: "dark", wait: 6000 },
  { name: "history-phone", scene: "few", path: "history", size: PHONE, wait: 6000 },
  { name: "server", scene: "few", path: "server", wait: 2000 },
  { name: "submit", scene: "few", path: "submit", wait: 1000 },
  {
    name: "broken",
    scene: "few",
    path: "",
    wait: 6000,
    act: async (page, mock) => {
      mock.break();
      await page.waitForTimeout(7000);
    },
  },
  {
    name: "help",
    scene: "few",
    path: "",
    wait: 1500,
    act: async (page) => {
      await page.keyboard.press("?");
      await page.waitForTimeout(500);
    },
  },
];

/** @param {import("playwright-core").Page} page */
async function hover(page) {
  const box = await page.locator(".lanes-scroll").boundingBox();
  if (!box) return;
  for (let x = 0.9; x > 0.3; x -= 0.004) {
    await page.mouse.move(box.x + box.width * x, box.y + 100);
    await page.waitForTimeout(30);
    const text = await page.locator(".lanes-info").textContent();
    if (text?.includes("key hot")) break;
  }
  await page.waitForTimeout(300);
}

for (const { name, scene, path, theme, size, wait = 1000, act } of SHOTS) {
  if (only && !only.split(",").includes(name)) continue;
  const mock = await startMock({ scene });
  const { page, context, problems } = await openPage(browser, {
    url: `${mock.url}#/${path}`,
    size: size ?? DESKTOP,
    theme,
  });
  await page.waitForTimeout(wait);
  if (act) await act(page, mock).catch((error) => console.log(name, error.message));
  await page.screenshot({ path: `${folder}/${name}.png`, fullPage: size === PHONE });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  if (wide) console.log(`${name}: wider than its window`);
  if (problems.length > 0) console.log(name, problems.slice(0, 4));
  await context.close();
  await mock.close();
}
await browser.close();
process.exit();
