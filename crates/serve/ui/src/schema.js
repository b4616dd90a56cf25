// What the JSON Schema of scenarios says of a key: its meaning, its keys below, its choices.
// The keys of variants of one table: a word that tells them apart is any of theirs.
const merged = (tables) => {
  const all = {};
  for (const table of tables) {
    for (const [key, node] of Object.entries(table)) {
      const known = all[key];
      const words = known && [...choices(known), ...choices(node)];
      all[key] = words && node.const !== undefined ? { type: "string", description: known.about ?? "", choices: words, about: known.about } : node;
    }
  }
  return all;
};

const resolve = (root, node) => {
  if (!node) return undefined;
  if (node.$ref) {
    const target = node.$ref.split("/").slice(1).reduce((at, part) => at?.[part], root);
    return { ...resolve(root, target), ...Object.fromEntries(Object.entries(node).filter(([key]) => key !== "$ref")) };
  }
  const parts = node.anyOf ?? node.oneOf ?? node.allOf;
  if (!parts) return node;
  const inner = parts.map((part) => resolve(root, part)).filter(Boolean);
  const properties = merged([...inner.map((part) => part.properties ?? {}), node.properties ?? {}]);
  const first = inner.find((part) => part.items);
  return { ...node, properties: Object.keys(properties).length ? properties : undefined, items: node.items ?? first?.items, choices: inner.flatMap((part) => choices(part)) };
};

/** The schema of a dotted path, or undefined. */
export const at = (root, path) => {
  let node = resolve(root, root);
  for (const part of path) {
    if (!node) return undefined;
    if (node.items && !node.properties?.[part]) node = resolve(root, node.items);
    if (/^\d+$/.test(part)) continue;
    const more = typeof node.additionalProperties === "object" ? node.additionalProperties : undefined;
    node = resolve(root, node.properties?.[part] ?? more);
  }
  return node?.items && !node.properties ? { ...node, properties: resolve(root, node.items)?.properties } : node;
};

/** The values that a key may have, with what each means. */
export const choices = (node) => {
  if (!node) return [];
  const own = [
    ...(node.enum ?? []).map((value) => ({ value })),
    ...(node.const !== undefined ? [{ value: node.const, info: node.description }] : []),
    ...(node.choices ?? []),
  ];
  if (node.type === "boolean") own.push({ value: true }, { value: false });
  return own.filter((choice) => choice.value !== null);
};

/** A line about a key: type, unit, default, range. */
export const facts = (node) => {
  const type = [node.type].flat().filter((kind) => kind && kind !== "null").join(" or ");
  const range = node.minimum !== undefined || node.maximum !== undefined ? `${node.minimum ?? "…"} to ${node.maximum ?? "…"}` : "";
  const shown = node.default !== undefined && node.default !== null && typeof node.default !== "object";
  return [type, range, shown ? `default ${JSON.stringify(node.default)}` : ""].filter(Boolean).join("; ");
};

/** The table that a line of TOML stands in: the last `[a.b]` above it. */
export const tableAt = (lines, line) => {
  for (let at = line; at >= 0; at -= 1) {
    const found = lines[at].match(/^\s*\[\[?([^\]]+)\]\]?/);
    if (found) return { path: found[1].split(".").map((part) => part.trim()), line: at };
  }
  return { path: [], line: -1 };
};

/** Keys of inline tables that are open before a column: `routing = { ` gives ["routing"]. */
export const inlineAt = (text) => {
  const path = [];
  let key = "";
  for (const [, word, sign] of text.matchAll(/([\w.-]+)?\s*([={},])?/g)) {
    if (word) key = word;
    if (sign === "{") path.push(key);
    if (sign === "}") path.pop();
  }
  return path.flatMap((part) => part.split("."));
};

const follow = (root, node) => {
  while (node?.$ref) node = node.$ref.split("/").slice(1).reduce((at, part) => at?.[part], root);
  return node;
};

/** The tables that one word tells apart: the word, its meaning and the keys beside it. */
export const variants = (root, path, tag) => {
  const step = (node, key) => { const inner = follow(root, node); return follow(root, (follow(root, inner?.items) ?? inner)?.properties?.[key]); };
  const tables = path.reduce(step, root)?.oneOf ?? [];
  return tables.map((table) => ({
    word: table.properties[tag].const,
    about: table.description ?? "",
    fields: Object.entries(table.properties).filter(([key]) => key !== tag).map(([key, node]) => ({ key, about: node.description ?? "", required: (table.required ?? []).includes(key) })),
  }));
};

/** A value as people write it: ratios as 2:1, words without quotes. */
export const plain = (node, value) => {
  const text = String(value);
  if (text === "[]") return "";
  if (node?.["x-ratio"]) {
    const ratios = text.replace(/^\[|\]$/g, "").split(",").map((part) => part.trim()).filter(Boolean);
    if (ratios.length && ratios.every((part) => Number.isFinite(Number(part)))) return ratios.map((part) => `${Number(part)}:1`).join(", ");
  }
  return text.replace(/^"(.*)"$/, "$1");
};

/** The schema with the names of hardware and models as choices of the keys that take them; others may be written. */
export const withNames = (root, names) => {
  for (const [table, { properties }] of Object.entries(root.$defs)) {
    for (const [key, node] of Object.entries(properties ?? {})) {
      const kind = table === "SwitchConfig" && key === "model" ? "switch" : key;
      const isText = [node.type].flat().includes("string") || node.$ref?.endsWith("/ModelChoice");
      if (names[kind] && isText) Object.assign(node, { isOpen: true, choices: names[kind].map(({ name, title }) => ({ value: name, info: title })) });
    }
  }
  return root;
};

/** The keys of scenarios in the order of the schema, and whether each may be left out without any default. */
export const leaves = (root) => {
  const found = new Map();
  const look = (node, path) => {
    for (const key of Object.keys(node?.properties ?? {})) {
      const inner = at(root, [...path, key]);
      const own = follow(root, node.properties[key]);
      const isTable = inner?.properties && !inner.items && !inner.choices?.length;
      if (isTable && path.length < 4) look(inner, [...path, key]);
      else found.set([...path, key].join("."), own?.default === null && !inner?.properties);
    }
  };
  look(at(root, []), []);
  return found;
};

/** What a problem says would be right: each a list of keys and values to write together. */
export const remedies = ({ key, message, help }) => {
  if (!key || !help || /there is no key/.test(message)) return [];
  const near = help.match(/^(?:try ([\w.-]+)$|did you mean ["`]([^"`]+)["`]\?)/);
  if (near) return [[[key, near[1] ?? near[2]]]];
  // Settings to write together, with which it would fit.
  const settings = help.match(/^(job\.[\w.]+ = "?[\w-]+"?(?: with )?)+ would fit$/) ? [...help.matchAll(/(job\.[\w.]+) = "?([\w-]+)"?/g)] : [];
  if (settings.length) return [settings.map(([, path, value]) => [path, value])];
  const copies = help.match(/^dp = (\d+)(?: \((\d+) GPUs\))? would fit$/);
  if (copies) return [[...(copies[2] ? [["job.gpus", copies[2]]] : []), ["job.parallel.dp", copies[1]]]];
  const sizes = help.endsWith(" would fit") ? [...help.matchAll(/gpus = (\d+) \(dp = (\d+)\)/g)] : [];
  if (sizes.length) return sizes.map(([, gpus, dp]) => [["job.gpus", gpus], ["job.parallel.dp", dp]]);
  const degrees = help.match(/^((?:tp|cp|pp|ep|etp) = \d+(?: or )?)+ would fit$/) ? [...help.matchAll(/(\w+) = (\d+)/g)] : [];
  return degrees.slice(0, 3).map(([, word, value]) => [[`job.parallel.${word}`, value]]);
};

// What people call what keys have another word for.
const ALSO = { speed: "rate", bandwidth: "rate", server: "node", servers: "nodes", card: "nic", cards: "nic", congestion: "control", spread: "routing" };
/** Whether a text has all words that are looked for, in any order. */
export const finds = (text, wanted) => {
  const there = text.toLowerCase();
  const words = wanted.toLowerCase().split(/[\s,._-]+/).filter((word) => !["", "per", "of", "the", "a", "in", "for"].includes(word));
  return words.every((word) => there.includes(word) || (ALSO[word] && there.includes(ALSO[word])));
};
