// Lines of JSON to markdown: `node table.mjs FILE FLUSHES`. A row for each figure, a column for each peer; medians
// with the least and the most. FLUSHES has the lines of flush.mjs.
import { readFileSync } from 'node:fs';
import { common, figures, notes, peers as described } from './compared.mjs';

const read = (file) => readFileSync(file, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
const lines = read(process.argv[2]);
const flushes = read(process.argv[3]);
const peers = Object.keys(described).filter((peer) => lines.some((line) => line.peer === peer));
const runs = (peer, figure) => lines.filter((line) => line.peer === peer && line.figure === figure);

const number = (value) => value.toLocaleString('en-US', { maximumFractionDigits: value < 100 ? 1 : 0 });
function cell(values) {
  if (values.length === 0) return '';
  if (values.length === 1) return number(values[0]);
  values.sort((a, b) => a - b);
  const middle = values.length / 2;
  const median = values.length % 2 ? values[Math.floor(middle)] : (values[middle - 1] + values[middle]) / 2;
  return `${number(median)} (${number(values[0])}–${number(values.at(-1))})`;
}

/** The notes that belong to cells of this table, in the order of their marks. */
const shown = notes.filter(({ figure, peers }) => peers.some((peer) => runs(peer, figure).length !== 0));
const marks = (peer, figure) => shown
  .flatMap((note, index) => (note.figure === figure && note.peers.includes(peer) ? [`<sup>${index + 1}</sup>`] : []))
  .join(' ');

const flush = (name) => cell(flushes.map((line) => line[name]));
console.log(`Flush of the disk, \`fdatasync\` after 8 KiB that are written over: p50 ${flush('p50_us')} µs, `
  + `p99 ${flush('p99_us')} µs. Cells: median of the rounds (lowest–highest). ${common}.\n`);

console.log(`| | ${peers.join(' | ')} |\n|---|${peers.map(() => '---:|').join('')}`);
for (const [figure, rows] of Object.entries(figures)) {
  if (!lines.some((line) => line.figure === figure)) continue;
  for (const [title, name] of rows) {
    const cells = peers.map((peer) => {
      const text = cell(runs(peer, figure).map((line) => line[name]));
      return text && `${text} ${marks(peer, figure)}`.trim();
    });
    console.log(`| ${title} | ${cells.join(' | ')} |`);
  }
}

console.log();
for (const [index, { figure, text }] of shown.entries()) {
  const { count } = lines.find((line) => line.figure === figure);
  console.log(`${index + 1}. ${text.replace('{count}', number(count))}`);
}
console.log();
for (const peer of peers) {
  const of = lines.filter((line) => line.peer === peer);
  const settings = Object.keys(figures).flatMap((figure) => of.find((line) => line.figure === figure) ?? []);
  const shownSettings = settings.filter((line) => line.settings).map((line) => `${line.figure} \`${line.settings}\``);
  const version = of[0].version ? ` ${of[0].version}` : '';
  console.log(`- ${peer}${version}: ${described[peer]}. ${shownSettings.join(', ')}`);
}
