/** Schedules: jobs at the times of a cron pattern. */

import { act, type ActionOptions, type CallOptions } from "./action.js";
import { Pages } from "./pages.js";
import type { RequestSpec, Transport } from "./transport.js";
import type { Job, Page, Schedule, SetSchedule } from "./types.js";

export class Schedules {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists schedules by name. */
  list(options: CallOptions = {}): Pages<Schedule> {
    return new Pages<Schedule>(async (cursor) => {
      const spec = { method: "GET", path: "/v1/schedules", query: { cursor }, signal: options.signal } as const;
      return (await this.#transport.request<Page<Schedule>>(spec)).body;
    });
  }

  /** Returns a schedule. */
  async get(name: string, options: CallOptions = {}): Promise<Schedule> {
    return (await this.#transport.request<Schedule>({ method: "GET", path: pathOf(name), signal: options.signal }))
      .body;
  }

  /** Creates a schedule, or replaces all of its settings. */
  async put(name: string, schedule: SetSchedule, options: ActionOptions = {}): Promise<Schedule> {
    return this.#act({ method: "PUT", path: pathOf(name), json: schedule }, options);
  }

  /** Pauses a schedule: its times make no jobs until it is resumed. */
  async pause(name: string, options: ActionOptions = {}): Promise<Schedule> {
    return this.#act({ method: "POST", path: `${pathOf(name)}/pause` }, options);
  }

  /** Resumes a paused schedule. */
  async resume(name: string, options: ActionOptions = {}): Promise<Schedule> {
    return this.#act({ method: "POST", path: `${pathOf(name)}/resume` }, options);
  }

  /** Makes its job now, also while the schedule is paused. */
  async run(name: string, options: ActionOptions = {}): Promise<Job> {
    return this.#act({ method: "POST", path: `${pathOf(name)}/run` }, options);
  }

  /** Removes a schedule. Its jobs stay. */
  async delete(name: string, options: ActionOptions = {}): Promise<void> {
    await this.#act({ method: "DELETE", path: pathOf(name) }, options);
  }

  async #act<T>(spec: RequestSpec, options: ActionOptions): Promise<T> {
    return (await act<T>(this.#transport, spec, options)).body;
  }
}

function pathOf(name: string): string {
  return `/v1/schedules/${encodeURIComponent(name)}`;
}
