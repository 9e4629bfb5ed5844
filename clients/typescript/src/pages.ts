/** Lists that the server returns in pages. */

import { DamagedDataError } from "./errors.js";
import type { DamagedRow, Page } from "./types.js";

/**
 * Items of a list, read page by page while they are iterated: `for await (const item of pages)`.
 *
 * If rows of the list are damaged in the store, the iteration ends with a `DamagedDataError` after all others.
 */
export class Pages<T> implements AsyncIterable<T> {
  readonly #read: (cursor: string | undefined) => Promise<Page<T>>;

  /** @internal */
  constructor(read: (cursor: string | undefined) => Promise<Page<T>>) {
    this.#read = read;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const items of this.pages()) yield* items;
  }

  /** Pages, each as the array of its items. */
  async *pages(): AsyncGenerator<T[], void, undefined> {
    let cursor: string | undefined;
    const damaged: DamagedRow[] = [];
    for (;;) {
      const page = await this.#read(cursor);
      yield page.items;
      damaged.push(...(page.damaged ?? []));
      const next = page.next_cursor ?? undefined;
      // The results of a job that goes on have a cursor on their last page, too.
      if (next === undefined || next === cursor) break;
      cursor = next;
    }
    if (damaged.length > 0) throw new DamagedDataError(damaged);
  }

  /** Reads at most `limit` items, by default all. */
  async toArray(limit = Number.POSITIVE_INFINITY): Promise<T[]> {
    const items: T[] = [];
    if (limit <= 0) return items;
    for await (const item of this) {
      items.push(item);
      if (items.length >= limit) break;
    }
    return items;
  }
}
