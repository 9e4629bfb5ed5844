/** Keys: the lines of subtasks that run in order. */

import { act, type ActionOptions, type CallOptions } from "./action.js";
import type { Transport } from "./transport.js";
import type { Key, KeysQuery, Page } from "./types.js";

export class Keys {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists keys with unfinished subtasks: by default the 50 whose heads are the oldest. */
  async list(query: KeysQuery = {}, options: CallOptions = {}): Promise<Key[]> {
    return this.#list(query, options);
  }

  /** Returns a key; `undefined` if it has no unfinished subtask and is not paused. */
  async get(key: string, options: CallOptions = {}): Promise<Key | undefined> {
    return (await this.#list({ key }, options))[0];
  }

  /** Pauses a key: none of its subtasks starts until it is resumed. */
  async pause(key: string, options: ActionOptions = {}): Promise<Key> {
    return this.#steer(key, "pause", options);
  }

  /** Resumes a paused key. */
  async resume(key: string, options: ActionOptions = {}): Promise<Key> {
    return this.#steer(key, "resume", options);
  }

  /** Retries the subtask whose failure has stopped the key. */
  async retryHead(key: string, options: ActionOptions = {}): Promise<Key> {
    return this.#steer(key, "retry-head", options);
  }

  /** Skips the subtask whose failure has stopped the key. */
  async skipHead(key: string, options: ActionOptions = {}): Promise<Key> {
    return this.#steer(key, "skip-head", options);
  }

  // The key is in the query, because proxies change some paths.

  async #list(query: KeysQuery & { key?: string }, { signal }: CallOptions): Promise<Key[]> {
    const answer = await this.#transport.request<Page<Key>>({ method: "GET", path: "/v1/keys", query, signal });
    return answer.body.items;
  }

  async #steer(key: string, what: string, options: ActionOptions): Promise<Key> {
    return (await act<Key>(this.#transport, { method: "POST", path: "/v1/keys", query: { key, what } }, options)).body;
  }
}
