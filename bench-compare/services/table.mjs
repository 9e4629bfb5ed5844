// Lines of JSON to markdown: `node table.mjs FILE`. A row for each figure, a column for each peer; medians
// with the least and the most.
import { readFileSync } from 'node:fs';

const titles = {
  one: ['one submit at a time, p50, µs', 'p50_us', 'p99, µs', 'p99_us'],
  many: ['submits a second, 64 at a time', 'per_second'],
  through: ['submitted, 64 at a time, and done meanwhile, jobs a second', 'per_second'],
  bulk: ['submitted in bulk, jobs or subtasks a second', 'per_second'],
  drain: ['drained, jobs or subtasks a second', 'per_second'],
  'drain-jobs': ['the same as jobs of one subtask', 'per_second'],
  'drain-leased': ['the same by workers in another process, over HTTP', 'per_second'],
  hot: ['drained in order, one key, a second', 'per_second'],
  start: ['submit to start, p50, µs', 'p50_us', 'p99, µs', 'p99_us'],
};

const lines = readFileSync(process.argv[2], 'utf8').trim().split('\n').map((line) => JSON.parse(line));
const peers = [...new Set(lines.map(({ peer }) => peer))].sort((a, b) => (b === 'keylane') - (a === 'keylane') || a.localeCompare(b));
const runs = (peer, figure) => lines.filter((line) => line.peer === peer && line.figure === figure);

const number = (value) => Math.round(value).toLocaleString('en-US');
function cell(values) {
  if (values.length === 0) return '';
  if (values.length === 1) return number(values[0]);
  values.sort((a, b) => a - b);
  const middle = values.length / 2;
  const median = values.length % 2 ? values[Math.floor(middle)] : (values[middle - 1] + values[middle]) / 2;
  return `${number(median)} (${number(values[0])}–${number(values.at(-1))})`;
}

console.log(`| | ${peers.join(' | ')} |\n|---|${peers.map(() => '---:|').join('')}`);
for (const [figure, titled] of Object.entries(titles)) {
  if (!lines.some((line) => line.figure === figure)) continue;
  for (let index = 0; index < titled.length; index += 2) {
    const cells = peers.map((peer) => cell(runs(peer, figure).map((line) => line[titled[index + 1]])));
    console.log(`| ${titled[index]} | ${cells.join(' | ')} |`);
  }
}

console.log();
for (const peer of peers.filter((peer) => peer !== 'keylane')) {
  const of = lines.filter((line) => line.peer === peer);
  const settings = Object.keys(titles).flatMap((figure) => of.find((line) => line.figure === figure) ?? []);
  console.log(`- ${peer} ${of[0].version}: ${settings.map((line) => `${line.figure} \`${line.settings}\``).join(', ')}`);
}
