// The parts of a measurement that are processes of their own: submitters and workers. They and the process that
// measures exchange lines of JSON over standard input and output, so that a part can be in any language.
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { createInterface } from 'node:readline';

/** Milliseconds of the monotonic clock, which all processes of a machine share. */
export const now = () => Number(process.hrtime.bigint()) / 1e6;

/** Calls `take` with each message of a stream. */
function messages(stream, take) {
  createInterface({ input: stream }).on('line', (line) => take(JSON.parse(line)));
}

/** Handle of a part that runs. Emits `message` for each line of its output. */
export class Part extends EventEmitter {
  constructor(command, settings) {
    super();
    this.process = spawn(command[0], command.slice(1), {
      env: { ...process.env, PART: JSON.stringify(settings) },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    process.on('exit', () => this.process.kill('SIGKILL'));
    this.process.on('exit', (code, signal) => {
      if (code || signal) throw new Error(`${command.join(' ')} ended with ${code ?? signal}`);
    });
    messages(this.process.stdout, (message) => this.emit('message', message));
  }

  /** Returns a part when it is ready. */
  static async start(command, settings) {
    const part = new Part(command, settings);
    await part.next();
    return part;
  }

  send(message) {
    this.process.stdin.write(`${JSON.stringify(message)}\n`);
  }

  /** Returns its next message. */
  async next() {
    return (await once(this, 'message'))[0];
  }

  /** Lets it end, and waits for that. */
  async end() {
    this.process.stdin.end();
    if (this.process.exitCode === null) await once(this.process, 'exit');
  }
}

/** The process that measures, as a part sees it. */
export class Measurer {
  #go;
  #end;

  constructor() {
    const lines = createInterface({ input: process.stdin });
    this.#go = once(lines, 'line');
    this.#end = once(lines, 'close');
  }

  send(message) {
    process.stdout.write(`${JSON.stringify(message)}\n`);
  }

  /** Tells that the part is ready, and waits until it may begin. */
  async begin() {
    this.send({ ready: true });
    await this.#go;
  }

  /** Waits until the part is to end. */
  async end() {
    await this.#end;
  }
}
