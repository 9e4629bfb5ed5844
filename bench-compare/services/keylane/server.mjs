// A process of `keylane serve`, with a configuration of its own.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { answerIfAny } from './connection.mjs';

const program = process.env.BESIDE;
const handler = new URL('./handler.mjs', import.meta.url).pathname;

/** Where handlers that the server runs tell what they have seen. */
export const seenSocket = () => `${process.env.DATA}/seen.sock`;

export const firstPort = Number(process.env.KEYLANE_PORT);

/** Returns a folder for the files of a server. */
export const newFolder = () => mkdtempSync(`${process.env.DATA}/keylane.`);

/** The version of the program, which prints `keylane 1.2.3`. */
export const version = () =>
  execFileSync(program, ['-V'], { encoding: 'utf8' }).trim().split(' ').at(-1);

/** The kind `leased` is for remote workers; a subtask of `worked` is done by a process that the server runs. */
const configuration = ({ port, store, folder, slots = 64, workers = 1 }) => `
[server]
listen = "127.0.0.1:${port}"
store = ${JSON.stringify(store)}
data_folder = ${JSON.stringify(folder)}
slots = ${slots}
[kinds.leased]
lease = "60s"
[kinds.worked]
worker = ${JSON.stringify([process.execPath, handler, seenSocket()])}
workers = ${workers}
`;

export class Server {
  /** Starts a server. It is a process by then, and not yet ready. */
  constructor({ port = firstPort, store, folder, slots, workers }) {
    mkdirSync(folder, { recursive: true });
    const file = `${folder}/keylane.toml`;
    // Only a store in a database has a folder beside it.
    const text = configuration({ port, store, folder, slots, workers });
    writeFileSync(file, store.startsWith('postgres') ? text : text.replace(/^data_folder.*\n/m, ''));
    this.port = port;
    this.process = spawn(program, ['serve', '--config', file], { stdio: ['ignore', 'ignore', 'inherit'] });
    this.ended = once(this.process, 'exit');
    process.on('exit', () => this.process.kill('SIGKILL'));
  }

  get hasEnded() {
    return this.process.exitCode !== null || this.process.signalCode !== null;
  }

  /** Waits until it answers a probe with this status: 200 when it is ready, 503 while it waits for another server. */
  async answers(status) {
    for (;;) {
      if (this.hasEnded) throw new Error('keylane serve has ended before it was ready');
      const answer = await answerIfAny(this.port, 'GET', '/readyz');
      if (answer?.status === status) return;
      await new Promise((again) => setTimeout(again, 10));
    }
  }

  /** Kills the server, which has no time to write anything. */
  async kill() {
    this.process.kill('SIGKILL');
    await this.ended;
  }

  /** Stops it in order. */
  async stop() {
    this.process.kill('SIGTERM');
    await this.ended;
  }
}
