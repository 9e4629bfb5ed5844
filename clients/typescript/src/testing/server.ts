/** A real server for tests: `keylane serve` on a free port, with a store in a temporary folder. */

import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { Client, type ClientOptions } from "../client.js";
import { KeylaneError } from "../errors.js";
import { sleep } from "../retry.js";
import { toToml, type Setting } from "./toml.js";

export interface ServerOptions {
  /** Tables `[kinds.NAME]` of the configuration. Default: a kind `any` for workers. */
  kinds?: Readonly<Record<string, Readonly<Record<string, Setting>>>>;
  /** Table `[server]` of the configuration. */
  settings?: Readonly<Record<string, Setting>>;
  /** Whole configuration as TOML, instead of `kinds` and `settings`. Its address is not used. */
  config?: string;
  /** Path of the program. Default: the variable `KEYLANE_PROGRAM`, or `keylane` in PATH. */
  program?: string;
  /** More variables of the program's environment. */
  environment?: Readonly<Record<string, string>>;
  /** Longest wait until the server is ready, in milliseconds. Default: one minute. */
  startTimeoutMs?: number;
}

/** The server did not start. The message has what it printed. */
export class ServerError extends KeylaneError {
  override name = "ServerError";
}

/** Starts a server, and returns it when it is ready. */
export async function startServer(options: ServerOptions = {}): Promise<TestServer> {
  const folder = await mkdtemp(join(tmpdir(), "keylane-"));
  const server = new TestServer(folder, options);
  try {
    await server.start();
    return server;
  } catch (error) {
    await server.close();
    throw error;
  }
}

export class TestServer {
  /** Folder with the configuration and the store. */
  readonly folder: string;
  readonly #options: ServerOptions;
  #process: ChildProcess | undefined;
  #ended: Promise<unknown> = Promise.resolve();
  #url = "";
  #output = "";

  /** @internal */
  constructor(folder: string, options: ServerOptions) {
    this.folder = folder;
    this.#options = options;
  }

  /** Address of the server, which stays over restarts. */
  get url(): string {
    return this.#url;
  }

  /** What the server has printed. */
  get output(): string {
    return this.#output;
  }

  /** Makes a client of this server. */
  client(options: ClientOptions = {}): Client {
    return new Client({ url: this.#url, ...options });
  }

  /** Starts the server, again after `stop` or `kill`. */
  async start(): Promise<void> {
    if (this.#process !== undefined)
      throw new ServerError("the server runs already; stop it before it is started again");
    const config = join(this.folder, "keylane.toml");
    const listen = this.#url === "" ? "127.0.0.1:0" : new URL(this.#url).host;
    await writeFile(config, this.#configuration());
    const program = this.#options.program ?? process.env["KEYLANE_PROGRAM"] ?? "keylane";
    this.#spawn(program, ["serve", "--config", config, "--listen", listen, "--store", join(this.folder, "keylane.db")]);
    await this.#untilReady(this.#options.startTimeoutMs ?? 60_000);
  }

  /** Stops the server: what runs may end. */
  async stop(): Promise<void> {
    await this.#end("SIGTERM");
  }

  /** Kills the server, as a crash would. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Ends the server, and removes its folder. */
  async close(): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #configuration(): string {
    const { config, kinds = { any: { lease: "30s" } }, settings = {} } = this.#options;
    if (config !== undefined) return config;
    const tables = Object.entries(kinds).map(([name, kind]) => [`kinds.${JSON.stringify(name)}`, kind] as const);
    return toToml({ server: settings, ...Object.fromEntries(tables) });
  }

  #spawn(program: string, args: readonly string[]): void {
    const environment = { ...process.env, ...this.#options.environment };
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: environment, cwd: this.folder });
    const killWithThis = (): void => void child.kill("SIGKILL");
    process.once("exit", killWithThis);
    this.#process = child;
    this.#ended = new Promise((resolve) => {
      const end = (why: unknown): void => {
        process.removeListener("exit", killWithThis);
        if (why instanceof Error) this.#output += `${why.message}\n`;
        if (this.#process === child) this.#process = undefined;
        resolve(why);
      };
      child.once("error", end);
      child.once("close", end);
    });
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        this.#output += `${line}\n`;
        const url = /listening on (http:\S+)/.exec(line)?.[1];
        if (url !== undefined) this.#url = url;
      });
    }
  }

  async #untilReady(timeoutMs: number): Promise<void> {
    const end = performance.now() + timeoutMs;
    const begin = this.#output.length;
    while (performance.now() < end) {
      if (this.#process === undefined)
        throw new ServerError(`the server ended before it was ready: ${this.#output.slice(begin).trim()}`);
      if (this.#output.slice(begin).includes("listening on")) {
        const response = await fetch(`${this.#url}/readyz`, { signal: AbortSignal.timeout(5_000) }).catch(
          () => undefined,
        );
        await response?.body?.cancel();
        if (response?.ok === true) return;
      }
      await sleep(20);
    }
    throw new ServerError(`the server was not ready in ${String(timeoutMs)} ms: ${this.#output.slice(begin).trim()}`);
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    this.#process?.kill(signal);
    await this.#ended;
  }
}
