// A long-lived worker of a kind, which the server runs: does nothing with each task, and tells over a socket what it
// has seen.
import net from 'node:net';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Seen, telling } from '../seen.mjs';

const seen = new Seen();
const measurer = net.connect(process.argv[2]);
await once(measurer, 'connect');
const tell = (totals) => measurer.write(`${JSON.stringify(totals)}\n`);
const stopTelling = telling(seen, tell);

const answer = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const { op, id, payload } = JSON.parse(line);
  if (op === 'hello') answer({ op: 'ready' });
  else if (op === 'task') {
    seen.add(payload.n);
    answer({ op: 'done', id });
  } else if (op === 'bye') break;
}
stopTelling();
measurer.destroy();
