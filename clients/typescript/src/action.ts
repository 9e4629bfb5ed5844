/** Actions: requests that change something, and are executed once however often they are sent. */

import { randomUUID } from "node:crypto";

import type { Answer, RequestSpec, Transport } from "./transport.js";

export interface CallOptions {
  /** Ends the call: it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface ActionOptions extends CallOptions {
  /** Key by which the server recognizes a repeated request. Default: a new one for each call. */
  idempotencyKey?: string | undefined;
}

/** Sends an action with an idempotency key, so that it can be repeated and is executed once. */
export async function act<T>(transport: Transport, spec: RequestSpec, options: ActionOptions): Promise<Answer<T>> {
  const headers = { ...spec.headers, "idempotency-key": options.idempotencyKey ?? randomUUID() };
  return transport.request<T>({ ...spec, headers, signal: options.signal });
}
