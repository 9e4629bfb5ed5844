// Cuts a text/event-stream into its messages, however it is cut into pieces on its way.

/** @typedef {{id: string | null, event: string, data: string}} Message */

export class EventParser {
  /** What has come of a line that has not ended. */
  #rest = "";
  /** Whether the last piece ended with a carriage return, whose line feed may come with the next. */
  #afterReturn = false;
  /** @type {string[]} */
  #data = [];
  #event = "";
  /** @type {string | null} */
  #id = null;

  /** How long to wait before connecting again, if the server has said so. @type {number | null} */
  retryMs = null;

  /**
   * The messages that end in this piece.
   * @param {string} piece
   * @returns {Message[]}
   */
  push(piece) {
    if (this.#afterReturn && piece.startsWith("\n")) piece = piece.slice(1);
    if (piece !== "") this.#afterReturn = piece.endsWith("\r");
    const lines = (this.#rest + piece).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#line(line) ?? []);
  }

  /**
   * @param {string} line
   * @returns {Message | undefined}
   */
  #line(line) {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    return undefined;
  }

  #end() {
    const message = { id: this.#id, event: this.#event || "message", data: this.#data.join("\n") };
    const isEmpty = this.#data.length === 0;
    this.#data = [];
    this.#event = "";
    return isEmpty ? undefined : message;
  }
}
