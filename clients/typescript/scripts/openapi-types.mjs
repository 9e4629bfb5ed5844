// Generates src/generated/openapi.ts from the document of a server, or checks with --check that it is
// current. The server is the program that KEYLANE_PROGRAM names, or `keylane`.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import openapiTS, { astToString } from "openapi-typescript";
import { read, simplify } from "../../openapi/simplify.mjs";

const FILE = new URL("../src/generated/openapi.ts", import.meta.url);
const HEADER = `// Generated from the server's OpenAPI document by \`npm run types\`; do not edit.\n\n`;

const program = process.env.KEYLANE_PROGRAM || "keylane";
const current = await readFile(FILE, "utf8").catch(() => "");
const generated = HEADER + astToString(await openapiTS(simplify(await documentOf(program))));

if (!process.argv.includes("--check")) {
  await writeFile(FILE, generated);
} else if (current !== generated) {
  console.error(
    "src/generated/openapi.ts is not what the server's document gives: run `npm run types`, and commit the file.",
  );
  process.exit(1);
}

/** Starts a server in a temporary folder, and returns its document. */
async function documentOf(program) {
  const folder = await mkdtemp(join(tmpdir(), "keylane-openapi-"));
  const args = ["serve", "--listen", "127.0.0.1:0", "--kind", "any=cat", "--store", join(folder, "store.db")];
  const server = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => server.once("close", resolve));
  try {
    for await (const line of createInterface({ input: server.stdout })) {
      const url = /listening on (http:\S+)/.exec(line)?.[1];
      if (url !== undefined) return await readWhenStarted(`${url}/openapi.json`);
    }
    throw new Error(`\`${program} ${args.join(" ")}\` ended before it listened`);
  } finally {
    server.kill("SIGKILL");
    await ended;
    await rm(folder, { recursive: true, force: true });
  }
}

async function readWhenStarted(url) {
  while ((await fetch(url)).status === 503);
  return read(url);
}
