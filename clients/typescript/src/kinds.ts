/** Kinds of jobs: their handlers and limits. */

import { act, type ActionOptions, type CallOptions } from "./action.js";
import type { RequestSpec, Transport } from "./transport.js";
import type { Kind, KindPatch, KindSetting } from "./types.js";

export class Kinds {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists the kinds that the server is configured for. */
  async list(options: CallOptions = {}): Promise<Kind[]> {
    const answer = await this.#transport.request<{ items: Kind[] }>({
      method: "GET",
      path: "/v1/kinds",
      signal: options.signal,
    });
    return answer.body.items;
  }

  /** Returns a kind. */
  async get(kind: string, options: CallOptions = {}): Promise<Kind> {
    return (await this.#transport.request<Kind>({ method: "GET", path: pathOf(kind), signal: options.signal })).body;
  }

  /** Pauses a kind: nothing of it starts until it is resumed. */
  async pause(kind: string, reason?: string, options: ActionOptions = {}): Promise<Kind> {
    return this.#act(
      { method: "POST", path: `${pathOf(kind)}/pause`, json: reason === undefined ? {} : { reason } },
      options,
    );
  }

  /** Resumes a paused kind. */
  async resume(kind: string, options: ActionOptions = {}): Promise<Kind> {
    return this.#act({ method: "POST", path: `${pathOf(kind)}/resume` }, options);
  }

  /** Changes limits of a kind until they are reset. */
  async change(kind: string, patch: KindPatch, options: ActionOptions = {}): Promise<Kind> {
    return this.#act({ method: "PATCH", path: pathOf(kind), json: patch }, options);
  }

  /** Gives changed settings their configured values again, by default all of them. */
  async reset(kind: string, settings?: readonly KindSetting[], options: ActionOptions = {}): Promise<Kind> {
    return this.#act(
      { method: "POST", path: `${pathOf(kind)}/reset`, json: settings === undefined ? {} : { settings } },
      options,
    );
  }

  async #act(spec: RequestSpec, options: ActionOptions): Promise<Kind> {
    return (await act<Kind>(this.#transport, spec, options)).body;
  }
}

function pathOf(kind: string): string {
  return `/v1/kinds/${encodeURIComponent(kind)}`;
}
