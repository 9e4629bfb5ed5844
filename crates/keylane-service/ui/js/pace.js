// When something is done that is asked for often.

/**
 * Debounces `work`: calls it once, a moment after the last of many calls. For typed input.
 * @param {() => void} work
 * @param {number} ms
 */
export function later(work, ms) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}

/**
 * Throttles `work`: calls it a moment after the first request, once for all requests until then. Calls never overlap.
 * For messages of the server, which may never pause.
 * @param {() => unknown} work
 * @param {number} ms
 */
export function soon(work, ms) {
  let isOnItsWay = false;
  let isAskedAgain = false;
  const ask = async () => {
    isAskedAgain = true;
    if (isOnItsWay) return;
    isOnItsWay = true;
    await new Promise((resolve) => setTimeout(resolve, ms));
    isAskedAgain = false;
    try {
      await work();
    } finally {
      isOnItsWay = false;
      if (isAskedAgain) ask();
    }
  };
  return ask;
}
