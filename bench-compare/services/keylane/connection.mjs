// A client that takes little of the machine: HTTP/1.1 over a plain socket, one request after another.
import net from 'node:net';
import { once } from 'node:events';

const closed = () => Object.assign(new Error('the server has closed a connection'), { code: 'ECONNRESET' });

/** A connection that is used for one request after another. */
export class Connection {
  #socket;
  #received = Buffer.alloc(0);
  #waiting = null;

  static async open(port) {
    const connection = new Connection();
    const socket = net.connect({ port, host: '127.0.0.1', noDelay: true });
    await once(socket, 'connect');
    socket.on('data', (data) => connection.#take(data));
    const lost = (error) => connection.#waiting?.reject(error);
    socket.on('error', lost);
    socket.on('close', () => lost(closed()));
    connection.#socket = socket;
    return connection;
  }

  close() {
    this.#socket.destroy();
  }

  /** Returns status and body of the answer. `body` is a text or absent. */
  request(method, path, body = '', type = 'application/json') {
    const head = `${method} ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: ${type}\r\n`;
    return new Promise((resolve, reject) => {
      if (this.#socket.destroyed) throw closed();
      this.#waiting = { resolve, reject };
      this.#socket.write(`${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
    });
  }

  /** Returns the body of an answer that is a success. */
  async ask(method, path, body, type) {
    const answer = await this.request(method, path, body, type);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.body}`);
    return answer.body === '' ? null : JSON.parse(answer.body);
  }

  #take(data) {
    this.#received = this.#received.length === 0 ? data : Buffer.concat([this.#received, data]);
    const headEnd = this.#received.indexOf('\r\n\r\n');
    if (headEnd < 0) return;
    const head = this.#received.latin1Slice(0, headEnd);
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0);
    const end = headEnd + 4 + length;
    if (this.#received.length < end) return;
    const body = this.#received.utf8Slice(headEnd + 4, end);
    this.#received = this.#received.subarray(end);
    const { resolve } = this.#waiting;
    this.#waiting = null;
    resolve({ status: Number(head.slice(9, 12)), body });
  }
}

/** Returns the answer of a server that may not listen yet, or null without an answer. */
export async function answerIfAny(port, ...request) {
  let connection;
  try {
    connection = await Connection.open(port);
    return await connection.request(...request);
  } catch (error) {
    if (!['ECONNREFUSED', 'ECONNRESET'].includes(error.code)) throw error;
    return null;
  } finally {
    connection?.close();
  }
}

/** Connections of which each request takes a free one, or waits for one. */
export class Connections {
  #free;
  #waiting = [];

  static async open(port, count) {
    const connections = new Connections();
    connections.#free = await Promise.all(Array.from({ length: count }, () => Connection.open(port)));
    return connections;
  }

  ask(...request) {
    return this.#with((connection) => connection.ask(...request));
  }

  request(...request) {
    return this.#with((connection) => connection.request(...request));
  }

  async #with(use) {
    const connection = this.#free.pop() ?? await new Promise((given) => this.#waiting.push(given));
    try {
      return await use(connection);
    } finally {
      const next = this.#waiting.shift();
      if (next) next(connection);
      else this.#free.push(connection);
    }
  }

  close() {
    for (const connection of this.#free) connection.close();
  }
}
