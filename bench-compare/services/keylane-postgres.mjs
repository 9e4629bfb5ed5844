// `keylane serve` with its store in PostgreSQL, and the takeover of a second server.
import { serverPeer } from './keylane/peer.mjs';
import { takeoverBy } from './keylane/takeover.mjs';
import { connectionString, fresh } from './postgres.mjs';

const place = () => ({ prepare: fresh, store: connectionString });

export const { settings, version, prepare, open, work, finish } = serverPeer(place);
export const takeover = takeoverBy(connectionString);
