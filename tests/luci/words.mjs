// The page's words: those in its sources, those in the template, those that are translated.
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';

const app = join(import.meta.dirname, '../../luci-app');
const resources = join(app, 'htdocs/luci-static/resources');

/** { English: translation } of a language; nothing for English itself. */
export async function messages(language) {
  if (language === 'none') return {};
  return parse(await readFile(join(app, 'po', language, 'sqm-autotune.po'), 'utf8'));
}

export function parse(text) {
  const found = {};
  const entry = /^msgid ((?:".*"\n?)+)msgstr ((?:".*"\n?)+)/gm;
  const join = lines => lines.match(/".*"/g).map(line => JSON.parse(line)).join('');
  for (const [, id, words] of text.matchAll(entry)) if (join(id)) found[join(id)] = join(words);
  return found;
}

/** What the sources hand to `_()`. */
export async function used() {
  const texts = new Set();
  const files = (await readdir(resources, { recursive: true })).filter(name => name.endsWith('.js'));
  for (const file of files) {
    const source = await readFile(join(resources, file), 'utf8');
    for (const [, text] of source.matchAll(/\b_\('((?:[^'\\]|\\.)*)'\)/g)) texts.add(text.replaceAll("\\'", "'"));
    const calls = source.match(/\b_\(/g)?.length ?? 0;
    const plain = source.match(/\b_\('((?:[^'\\]|\\.)*)'\)/g)?.length ?? 0;
    if (calls !== plain) throw new Error(`${file}: only plain strings can be translated`);
  }
  for (const file of ['menu.d', 'acl.d'].map((part, n) => `root/usr/share/${['luci', 'rpcd'][n]}/${part}/luci-app-sqm-autotune.json`)) {
    const source = await readFile(join(app, file), 'utf8');
    for (const [, text] of source.matchAll(/"(?:title|description)": "(.*)"/g)) texts.add(text);
  }
  return [...texts].sort();
}

export const template = async () => parse(await readFile(join(app, 'po/templates/sqm-autotune.pot'), 'utf8'));
