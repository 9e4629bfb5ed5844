// `keylane serve` with its store in a file.
import { serverPeer } from './keylane/peer.mjs';

export const { settings, version, prepare, open, work, finish } = serverPeer((folder) => ({
  prepare: () => {},
  store: `${folder}/keylane.db`,
}));
