// Makes the server's OpenAPI document fit for code generators.
//
// The document says exactly which requests a server accepts: with the names of its kinds, with limits in
// bytes, and with one variant for each permitted combination of fields. That serves tests of the API. A
// generator makes a type of each variant, and of the kinds of the one server that it asked. So this
// module takes the document and
//
// - removes the names of kinds;
// - removes variants that only limit the length of a text;
// - lets a boolean have both values;
// - says that an integer may need 64 bits;
// - joins the variants of an object into one object: a field is required if all variants require it;
// - gives the items of pages the names of their schemas.
//
// The server still checks all of these rules, and its answer names the field.

/** Returns a simplified copy of the document. */
export function simplify(document) {
  const copy = structuredClone(document);
  const schemas = copy.components.schemas;
  for (const [name, schema] of Object.entries(schemas)) {
    schemas[name] = visit(schema);
  }
  copy.paths = visit(copy.paths);
  referToItems(schemas);
  return copy;
}

/** Reads a document from a file or an address. */
export async function read(place) {
  if (/^https?:/.test(place)) {
    const response = await fetch(place);
    if (!response.ok) throw new Error(`${place} answered ${response.status}`);
    return response.json();
  }
  const { readFile } = await import("node:fs/promises");
  return JSON.parse(await readFile(place, "utf8"));
}

function visit(node) {
  if (Array.isArray(node)) return node.map(visit);
  if (node === null || typeof node !== "object") return node;
  const visited = Object.fromEntries(Object.entries(node).map(([name, value]) => [name, visit(value)]));
  if (visited.properties !== undefined) withoutKinds(visited.properties);
  if (visited.type === "boolean") delete visited.enum;
  if (isLong(visited)) visited.format = "int64";
  return joinVariants(withoutLengths(withoutSingleChoice(visited)));
}

/** Kinds belong to the configuration of one server. */
function withoutKinds(properties) {
  if (Array.isArray(properties.kind?.enum)) delete properties.kind.enum;
  if (Array.isArray(properties.kinds?.items?.enum)) delete properties.kinds.items.enum;
}

/** Without a format, generators take 32 bits. */
function isLong(schema) {
  return [schema.type].flat().includes("integer") && (schema.format === undefined || schema.maximum > 2 ** 31 - 1);
}

/** `oneOf` with one choice is that choice. */
function withoutSingleChoice(schema) {
  if (schema.oneOf?.length !== 1) return schema;
  const { oneOf, ...rest } = schema;
  return { ...oneOf[0], ...rest };
}

function withoutLengths(schema) {
  const isLength = (variant) => Object.keys(variant).every((name) => name === "maxLength" || name === "pattern");
  if (!schema.anyOf?.every(isLength)) return schema;
  const { anyOf, ...rest } = schema;
  return { ...rest, maxLength: Math.max(...anyOf.map((variant) => variant.maxLength)) };
}

function joinVariants(schema) {
  const variants = schema.anyOf ?? [];
  if (variants.length === 0 || !variants.every((variant) => variant.properties !== undefined)) return schema;
  const { anyOf: _, ...rest } = schema;
  const properties = {};
  for (const variant of variants) {
    for (const [name, property] of Object.entries(variant.properties)) {
      properties[name] = widened(properties[name], property);
    }
  }
  const required = (variants[0].required ?? []).filter((name) => variants.every((variant) => variant.required?.includes(name)));
  const sorted = Object.fromEntries(Object.entries(properties).sort(([a], [b]) => (a < b ? -1 : 1)));
  const description = rest.description ?? variants.find((variant) => variant.description)?.description;
  return {
    ...rest,
    ...(description === undefined ? {} : { description }),
    type: "object",
    properties: sorted,
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  };
}

/** A field that has a fixed value in some variants takes the values of all. */
function widened(known, property) {
  if (known?.enum === undefined) return known ?? property;
  if (property.enum === undefined) return property;
  return { ...known, enum: [...new Set([...known.enum, ...property.enum])] };
}

/** Replaces the items of pages by references. */
function referToItems(schemas) {
  for (const [name, page] of Object.entries(schemas)) {
    const item = name.startsWith("Page_") ? name.slice("Page_".length) : undefined;
    if (item === undefined || page.properties?.items?.items === undefined) continue;
    schemas[item] ??= page.properties.items.items;
    page.properties.items.items = { $ref: `#/components/schemas/${item}` };
  }
}

if (process.argv[1] !== undefined && import.meta.url === new URL(`file://${process.argv[1]}`).href) {
  const [place] = process.argv.slice(2);
  if (place === undefined) {
    console.error("usage: node simplify.mjs FILE|ADDRESS > simplified.json");
    process.exit(2);
  }
  console.log(JSON.stringify(simplify(await read(place)), undefined, 1));
}
