// Keeps one stream of events open, and hands on what comes: at once, or when what holds it back is over.
//
// States: `connecting` (the first try, or the first since the tab was hidden), `live`, `lost` (it tries again), and
// `stopped` (the tab is hidden). Whether it is paused is another matter: the stream then goes on, and
// events wait in `#held`. If those become too many, they are forgotten and a reset takes their place.

import { authorization, newToken } from "./api.js";
import { EventParser } from "./sse.js";

/**
 * @typedef {import("./types.js").ServerEvent} ServerEvent
 * @typedef {"connecting" | "live" | "lost" | "stopped"} Connection
 */

const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 15_000;
/** Timeout of the stream, in milliseconds. The server sends a message every second. */
const SILENCE_MS = 20_000;
const MAX_HELD = 2_000;

export class Live {
  /** @type {Connection} */
  connection = "connecting";
  /** When something came last, by this machine's clock; 0 if nothing has. */
  heardAt = 0;
  /** When the next try begins, while the connection is lost. */
  retryAt = 0;

  /** @type {Map<string, Set<(event: ServerEvent) => void>>} */
  #listeners = new Map();
  /** @type {Set<() => void>} */
  #watchers = new Set();
  /** @type {Set<() => void>} */
  #openers = new Set();
  /** Why events wait: `button`, `selection`. @type {Set<string>} */
  #paused = new Set();
  /** @type {ServerEvent[]} */
  #held = [];
  #overflowed = false;
  /** @type {string | null} */
  #lastId = null;
  #retryMs = FIRST_RETRY_MS;
  /** @type {AbortController | null} */
  #current = null;
  #wake = () => {};

  /** @param {string} path */
  constructor(path) {
    this.path = path;
  }

  /** Connects, and again whenever that ends, as long as the tab is seen. */
  start() {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#stop();
      else this.#run();
    });
    if (!document.hidden) this.#run();
  }

  /** Does not wait for the next try. */
  retryNow() {
    this.#wake();
  }

  /**
   * @param {string} kind one of the server's, or `*`
   * @param {(event: ServerEvent) => void} listener
   * @param {AbortSignal} [signal] ends it
   */
  on(kind, listener, signal) {
    const all = this.#listeners.get(kind) ?? new Set();
    this.#listeners.set(kind, all.add(listener));
    signal?.addEventListener("abort", () => all.delete(listener));
  }

  /**
   * Told when the connection or the pause has changed.
   * @param {() => void} watcher
   * @param {AbortSignal} [signal] ends it
   */
  watch(watcher, signal) {
    this.#watchers.add(watcher);
    signal?.addEventListener("abort", () => this.#watchers.delete(watcher));
  }

  get isPaused() {
    return this.#paused.size > 0;
  }

  /** How many events wait. */
  get held() {
    return this.#held.length;
  }

  /** @param {string} why */
  isPausedBy(why) {
    return this.#paused.has(why);
  }

  /**
   * @param {string} why
   * @param {boolean} paused
   */
  setPaused(why, paused) {
    if (this.#paused.has(why) === paused) return;
    if (paused) this.#paused.add(why);
    else this.#paused.delete(why);
    if (!this.isPaused) this.#release();
    this.#changed();
  }

  #release() {
    const held = this.#held;
    this.#held = [];
    if (this.#overflowed) this.#emit(resetEvent());
    this.#overflowed = false;
    for (const event of held) this.#emit(event);
  }

  #stop() {
    this.#current?.abort();
    this.#current = null;
    this.#set("stopped");
  }

  async #run() {
    this.#current?.abort();
    const current = (this.#current = new AbortController());
    this.#set("connecting");
    while (!current.signal.aborted) {
      const wantsToken = await this.#follow(current.signal);
      if (current.signal.aborted) return;
      this.#set("lost");
      if (wantsToken && (await newToken())) continue;
      await this.#pauseBeforeRetry(current.signal);
    }
  }

  /**
   * Until the stream ends. Says whether that was for want of a token.
   * @param {AbortSignal} ended
   */
  async #follow(ended) {
    const silence = new AbortController();
    const stop = () => silence.abort();
    ended.addEventListener("abort", stop);
    let timer = setTimeout(stop, SILENCE_MS);
    try {
      /** @type {Record<string, string>} */
      const last = this.#lastId === null ? {} : { "Last-Event-ID": this.#lastId };
      const response = await fetch(this.path, {
        headers: { Accept: "text/event-stream", ...authorization(), ...last },
        signal: silence.signal,
        cache: "no-store",
      });
      if (!response.ok || !response.body) return response.status === 401;
      this.#opened();
      const parser = new EventParser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE_MS);
        this.heardAt = Date.now();
        for (const message of parser.push(value)) this.#receive(message);
        if (parser.retryMs !== null) this.#retryMs = parser.retryMs;
      }
    } catch {
      return false;
    } finally {
      clearTimeout(timer);
      ended.removeEventListener("abort", stop);
    }
  }

  /**
   * Told each time the stream goes on: what ran meanwhile may not come by it.
   * @param {() => void} listener
   */
  onOpen(listener) {
    this.#openers.add(listener);
  }

  #opened() {
    this.#retryMs = FIRST_RETRY_MS;
    this.heardAt = Date.now();
    this.#set("live");
    // Without a place to go on from, what happened until now may have been missed, also by answers that are on their way.
    if (this.#lastId === null) this.#deliver(resetEvent());
    else for (const listener of this.#openers) listener();
  }

  /** @param {import("./sse.js").Message} message */
  #receive(message) {
    if (message.id !== null) this.#lastId = message.id;
    if (message.event === "reset") return this.#deliver(resetEvent());
    try {
      this.#deliver(JSON.parse(message.data));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      // Part of a message cannot be used: read the whole state again.
      this.#deliver(resetEvent());
    }
  }

  /** @param {ServerEvent} event */
  #deliver(event) {
    if (!this.isPaused) return this.#emit(event);
    if (this.#held.length < MAX_HELD && !this.#overflowed) {
      this.#held.push(event);
    } else {
      this.#held = [];
      this.#overflowed = true;
    }
  }

  /** @param {ServerEvent} event */
  #emit(event) {
    for (const kind of [event.event, "*"]) {
      for (const listener of [...(this.#listeners.get(kind) ?? [])]) listener(event);
    }
  }

  /**
   * Twice as long each time, and not at the same moment as all others.
   * @param {AbortSignal} signal
   */
  async #pauseBeforeRetry(signal) {
    const wait = this.#retryMs * (0.75 + Math.random() / 2);
    this.#retryMs = Math.min(this.#retryMs * 2, MAX_RETRY_MS);
    this.retryAt = Date.now() + wait;
    this.#changed();
    await new Promise((resolve) => {
      this.#wake = () => resolve(null);
      const timer = setTimeout(resolve, wait);
      signal.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve(null);
      });
    });
    this.retryAt = 0;
  }

  /** @param {Connection} connection */
  #set(connection) {
    if (this.connection === connection) return;
    this.connection = connection;
    this.#changed();
  }

  #changed() {
    for (const watcher of [...this.#watchers]) watcher();
  }
}

/** @returns {ServerEvent} */
function resetEvent() {
  return { id: "", event: "reset", at: new Date().toISOString() };
}
