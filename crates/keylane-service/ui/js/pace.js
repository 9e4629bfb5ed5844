// When something is done that is asked for often.

/**
 * Calls `work` once, a moment after the last of many calls: for what somebody types.
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
 * Calls `work` a moment after it was asked for, once for all who ask meanwhile: for what the server says, which may
 * never be silent. It is not called again before it is done.
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
