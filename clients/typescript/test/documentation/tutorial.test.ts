/** The programs of docs/clients/typescript.md and of the README compile, run as they are written, and print what the page says. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { startServer, type TestServer } from "../../src/testing/index.js";

const PACKAGE = new URL("../../../", import.meta.url).pathname;
const PAGE = join(PACKAGE, "../../docs/clients/typescript.md");
const README = join(PACKAGE, "README.md");
// Inside the package, so that the programs find it by its name.
const FOLDER = join(PACKAGE, "build/tutorial");

interface Block {
  readonly language: string;
  readonly text: string;
}

async function blocksOf(page: string): Promise<Block[]> {
  const text = await readFile(page, "utf8");
  return [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language, body]) => ({
    language: language ?? "",
    text: body ?? "",
  }));
}

function fileOf(block: Block): string {
  const name = /^\/\/ (\S+\.ts)\n/.exec(block.text)?.[1];
  assert.ok(name !== undefined, `a program does not begin with the name of its file: ${block.text.slice(0, 80)}`);
  return name;
}

/** Runs a program, and returns what it prints. */
async function run(program: string, args: string[], url: string): Promise<string> {
  const child = spawn(program, args, {
    cwd: FOLDER,
    env: { ...process.env, KEYLANE_SERVER: url },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.on("data", (piece) => (output += String(piece)));
  const [status] = (await once(child, "close")) as [number | null];
  assert.equal(status, 0, `${args.join(" ")}: ${output}`);
  return output;
}

/** Runs a program that was compiled, at the server of this test: the pages have the usual address. */
async function runAtServer(source: string): Promise<string> {
  const file = join(FOLDER, "out", source.replace(/\.ts$/, ".js"));
  const text = await readFile(file, "utf8");
  await writeFile(file, text.replaceAll("http://127.0.0.1:7420", server.url));
  return run("node", [file], server.url);
}

const blocks = await blocksOf(PAGE);
const programs = blocks.filter((block) => block.language === "ts");
let server: TestServer;

before(async () => {
  await rm(FOLDER, { recursive: true, force: true });
  await mkdir(FOLDER, { recursive: true });
  const compilerOptions = {
    outDir: "out",
    rootDir: ".",
    strict: true,
    types: ["node"],
    lib: ["ES2023"],
    target: "ES2022",
  };
  const tsconfig = {
    compilerOptions: { ...compilerOptions, module: "NodeNext", erasableSyntaxOnly: true },
    include: ["*.ts"],
  };
  await writeFile(join(FOLDER, "tsconfig.json"), JSON.stringify(tsconfig));
  for (const block of programs) await writeFile(join(FOLDER, fileOf(block)), block.text);
  const readme = (await blocksOf(README)).find((block) => block.language === "ts");
  assert.ok(readme !== undefined);
  await writeFile(join(FOLDER, "readme.ts"), readme.text);
  await run("node", [join(PACKAGE, "node_modules/typescript/bin/tsc"), "-p", FOLDER], "");
  const config = blocks.find((block) => block.language === "toml");
  assert.ok(config !== undefined);
  server = await startServer({ config: config.text });
});
after(() => server.close());

test("the programs print what the page says, with its worker running", async () => {
  const worker = spawn("node", ["out/worker.js"], {
    cwd: FOLDER,
    env: { ...process.env, KEYLANE_SERVER: server.url },
    stdio: "inherit",
  });
  const ended = once(worker, "close");
  for (const [place, block] of blocks.entries()) {
    if (block.language !== "ts" || fileOf(block) === "worker.ts") continue;
    const output = await runAtServer(fileOf(block));
    const next = blocks[place + 1];
    if (next?.language === "text") assert.equal(output, next.text, fileOf(block));
  }
  worker.kill("SIGTERM");
  assert.deepEqual(await ended, [0, null]);
});

test("the program of the README does its job", async () => {
  const output = await runAtServer("readme.ts");
  assert.match(output, /^succeeded\n/);
  assert.match(output, /rendered: 'a\.png'.*rendered: 'b\.png'/s);
});

test("the page has programs, and each result belongs to one", () => {
  assert.ok(programs.length >= 8, String(programs.length));
  for (const [place, block] of blocks.entries()) {
    if (block.language === "text") assert.equal(blocks[place - 1]?.language, "ts");
  }
});
