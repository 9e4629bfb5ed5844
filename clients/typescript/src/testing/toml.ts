/** Writing of the configuration of a server. */

export type Setting = string | number | boolean | readonly Setting[] | { readonly [name: string]: Setting };

/** Writes tables as TOML. Keys and texts of JSON are keys and texts of TOML. */
export function toToml(tables: Readonly<Record<string, Readonly<Record<string, Setting>>>>): string {
  return Object.entries(tables)
    .map(([name, settings]) => `[${name}]\n${Object.entries(settings).map(line).join("")}`)
    .join("\n");
}

function line([name, setting]: [string, Setting]): string {
  return `${name} = ${valueOf(setting)}\n`;
}

function valueOf(setting: Setting): string {
  if (Array.isArray(setting)) return `[${(setting as readonly Setting[]).map(valueOf).join(", ")}]`;
  if (typeof setting !== "object") return JSON.stringify(setting);
  const entries = Object.entries(setting).map(([name, value]) => `${JSON.stringify(name)} = ${valueOf(value)}`);
  return `{ ${entries.join(", ")} }`;
}
