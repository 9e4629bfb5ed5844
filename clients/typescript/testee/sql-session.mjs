/**
 * Session with a database for the conformance suite: `node sql-session.mjs ADDRESS`. Each line of standard input is
 * `{"sql": …, "parameters": […]}`, and is answered with a line `{"rows": […]}` or `{"error": …}`.
 */

import { createInterface } from "node:readline";
import process from "node:process";

import pg from "pg";

const client = new pg.Client({ connectionString: process.argv[2] });
await client.connect();
for await (const line of createInterface({ input: process.stdin })) {
  const { sql, parameters } = JSON.parse(line);
  let answer;
  try {
    answer = { rows: (await client.query(sql, parameters)).rows };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await client.end();
