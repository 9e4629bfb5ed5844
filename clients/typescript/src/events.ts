/** Events that go on over broken connections and restarts of the server. */

import { KeylaneError } from "./errors.js";
import { messages } from "./event-stream.js";
import { backoff, reasonOf, sleep } from "./retry.js";
import type { Transport } from "./transport.js";
import { isFinal, type Event } from "./types.js";

/** The server sends a comment every 15 seconds; without one for this time, the connection is dead. */
const IDLE_MS = 45_000;
const MAX_RETRY_MS = 10_000;

export interface FollowSettings {
  readonly path: string;
  /** Job that is followed until it ends; `undefined` for all events, without an end. */
  readonly job: string | undefined;
  /** Id of the last event that the caller knows. */
  readonly after: string | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Follows events. After a broken connection it connects again, and goes on behind the last event. */
export async function* follow(transport: Transport, settings: FollowSettings): AsyncGenerator<Event, void, undefined> {
  const { signal, job } = settings;
  const state: FollowState = { last: settings.after, pauseMs: 0, failures: 0 };
  for (;;) {
    try {
      for await (const event of connection(transport, settings, state)) {
        yield event;
        if (job !== undefined && isEnd(event)) return;
      }
    } catch (error) {
      if (signal?.aborted === true) throw reasonOf(signal);
      if (error instanceof KeylaneError) throw error;
      // The connection broke.
    }
    state.failures += 1;
    await sleep(Math.max(state.pauseMs, backoff(state.failures)), signal);
  }
}

interface FollowState {
  /** Id of the last event. */
  last: string | undefined;
  /** Pause before a reconnection that the server asks for. */
  pauseMs: number;
  /** Number of connections since the last event. */
  failures: number;
}

async function* connection(
  transport: Transport,
  settings: FollowSettings,
  state: FollowState,
): AsyncGenerator<Event, void, undefined> {
  const known = state.last;
  const { response, deadline } = await transport.stream({
    method: "GET",
    path: settings.path,
    headers: { accept: "text/event-stream", "last-event-id": known },
    signal: settings.signal,
    retryTimeoutMs: Number.POSITIVE_INFINITY,
  });
  try {
    if (response.body === null) return;
    deadline.set(IDLE_MS);
    for await (const part of messages(response.body, () => {
      deadline.set(IDLE_MS);
    })) {
      if ("retryMs" in part) {
        state.pauseMs = Math.min(part.retryMs, MAX_RETRY_MS);
        continue;
      }
      const event = JSON.parse(part.message.data) as Event;
      state.failures = 0;
      state.last = part.message.id ?? event.id;
      // A stream of a job begins with the job's state. To a client that goes on behind an event, the
      // missed events come after it, and tell the same in order.
      const isRepeated =
        settings.job !== undefined && known !== undefined && event.id === known && event.event !== "reset";
      if (!isRepeated) yield event;
    }
  } finally {
    deadline.dispose();
    await response.body?.cancel().catch(() => undefined);
  }
}

function isEnd(event: Event): boolean {
  return event.event === "job_purged" || (event.job != null && isFinal(event.job.state));
}
