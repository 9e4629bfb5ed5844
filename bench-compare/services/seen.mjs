// What handlers have seen: how many jobs, the sum of their numbers, and when the first and the latest began.
import { now } from './part.mjs';

export class Seen {
  first = null;
  last = null;
  count = 0;
  sum = 0;
  #waiting = null;

  /** A handler begins the job with number `n`. */
  add(n) {
    this.last = now();
    this.first ??= this.last;
    this.count += 1;
    this.sum += n;
    this.#waiting?.();
  }

  /** Sets it to the totals of several processes. */
  setTotals(all) {
    const total = (name) => all.reduce((sum, one) => sum + one[name], 0);
    this.first = Math.min(...all.map(({ first }) => first));
    this.last = Math.max(...all.map(({ last }) => last));
    this.count = total('count');
    this.sum = total('sum');
    this.#waiting?.();
  }

  /** Waits until `count` jobs have begun. */
  async reaches(count) {
    while (this.count < count) await new Promise((changed) => { this.#waiting = changed; });
  }
}

/** Calls `tell` with the present state after changes, at most every two milliseconds. Returns a function that ends it. */
export function telling(seen, tell) {
  let told = 0;
  const timer = setInterval(() => {
    if (told === seen.count) return;
    told = seen.count;
    tell({ first: seen.first, last: seen.last, count: seen.count, sum: seen.sum });
  }, 2);
  return () => clearInterval(timer);
}
