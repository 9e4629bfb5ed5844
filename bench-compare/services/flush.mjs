// Time of a flush of the disk, as a line of JSON: `node flush.mjs FOLDER`. Writes 8 KiB over what is there and calls
// fdatasync, as PostgreSQL does with its log.
import { closeSync, fdatasyncSync, openSync, rmSync, writeSync } from 'node:fs';
import { now } from './part.mjs';

const FLUSHES = 500;
const PAGE = Buffer.alloc(8192, 1);
/** The file is this long beforehand, so that a flush writes no new length. */
const PAGES = 2048;

const path = `${process.argv[2]}/flush`;
const file = openSync(path, 'w');
writeSync(file, Buffer.alloc(PAGE.length * PAGES));
fdatasyncSync(file);
const times = [];
for (let index = 0; index < FLUSHES; index++) {
  const begin = now();
  writeSync(file, PAGE, 0, PAGE.length, (index % PAGES) * PAGE.length);
  fdatasyncSync(file);
  times.push((now() - begin) * 1000);
}
closeSync(file);
rmSync(path);
times.sort((a, b) => a - b);
console.log(JSON.stringify({ p50_us: times[FLUSHES / 2], p99_us: times[Math.floor(FLUSHES * 0.99)] }));
