// The versions of installed packages.
import { readFileSync } from 'node:fs';

export function versionOf(name) {
  const manifest = new URL(`./node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(manifest, 'utf8')).version;
}
