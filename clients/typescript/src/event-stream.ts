/** Server-sent events: the messages in a body. */

/** Message of a stream. */
export interface Message {
  readonly event: string;
  readonly data: string;
  /** Last id that the stream has given. */
  readonly id: string | undefined;
}

/** Parts of a stream: its messages, and the pauses before reconnections that it asks for, in milliseconds. */
export type Part = { readonly message: Message } | { readonly retryMs: number };

/** Reads the messages of a body. `onBytes` is called for each piece, comments included. */
export async function* messages(
  body: AsyncIterable<Uint8Array>,
  onBytes: () => void,
): AsyncGenerator<Part, void, undefined> {
  const decoder = new TextDecoder();
  const builder = new MessageBuilder();
  // Beginning of the line whose end has not come.
  let begun = "";
  // A line end at the end of a piece may be the first half of "\r\n".
  let held = "";
  for await (const piece of body) {
    onBytes();
    const text = held + decoder.decode(piece, { stream: true });
    held = text.endsWith("\r") ? "\r" : "";
    const lines = (held === "" ? text : text.slice(0, -1)).split(/\r\n|\n|\r/);
    const last = lines.pop() ?? "";
    for (const line of lines) {
      const part = builder.line(begun + line);
      begun = "";
      if (part !== undefined) yield part;
    }
    begun += last;
  }
  // A message without its empty line is incomplete, and is read again after the reconnection.
}

class MessageBuilder {
  #event = "";
  #data: string[] = [];
  #id: string | undefined;

  /** Takes a line; returns a part when it is complete. */
  line(line: string): Part | undefined {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) return { retryMs: Number(value) };
    return undefined;
  }

  #end(): Part | undefined {
    const [event, data] = [this.#event, this.#data];
    this.#event = "";
    this.#data = [];
    if (data.length === 0) return undefined;
    return { message: { event: event === "" ? "message" : event, data: data.join("\n"), id: this.#id } };
  }
}
