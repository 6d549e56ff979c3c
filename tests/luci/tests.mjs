// The page in a browser, with the real agent behind it on simulated lines. Prints a line for each test and a count.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { renderTests } from './render.mjs';
import { serve } from './server.mjs';
import { VALUES } from './values.mjs';
import { messages, template, used } from './words.mjs';

const [agent, work, uci, ...wanted] = process.argv.slice(2);
const require = createRequire(join(work, 'node_modules/'));
const { chromium } = require('playwright-core');
const axe = await readFile(require.resolve('axe-core/axe.min.js'), 'utf8');
const app = join(import.meta.dirname, '../../luci-app');
const screens = join(work, 'screens');
// Seconds of a line that pass in one real one.
const SLOW = '6';
const FAST = '4000';
const SQM = "\nconfig queue\n\toption interface 'pppoe-wan'\n\toption enabled '1'\n\toption download '60000'\n\toption upload '15000'\n\n";
const LINE = "config line\n\toption link 'pppoe-vdsl2'\n\toption sync_upload_kbit '18000'\n\toption sync_download_kbit '67000'\n";
process.env.PATH = `${uci}:${process.env.PATH}`;

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
await mkdir(screens, { recursive: true });

/** A router of files, its page, and everything that goes with the test. */
async function router(line = 'vdsl2-pppoe', pace = SLOW) {
  const root = await mkdtemp(join(work, 'root-'));
  await mkdir(join(root, 'etc/config'), { recursive: true });
  await mkdir(join(root, 'ubus'));
  await writeFile(join(root, 'etc/config/sqm'), SQM);
  await writeFile(join(root, 'etc/config/sqm-autotune'), LINE);
  const wan = { interface: 'wan', up: true, device: 'eth1', l3_device: 'pppoe-wan', proto: 'pppoe', route: [{ target: '0.0.0.0', mask: 0 }] };
  await writeFile(join(root, 'ubus/network.interface.dump.json'), JSON.stringify({ interface: [wan] }));
  const ours = await serve({ agent, root, line: ['--line', `sim:${line}`, '--pace', pace] });
  const contexts = [], complaints = [];
  Object.assign(ours, {
    complaints,
    sqm: () => readFile(join(root, 'etc/config/sqm'), 'utf8'),
    cli: (...words) => promisify(execFile)(agent, [...words, '--root', root]).catch(error => error),
    background: (...words) => spawn(agent, [...words, '--root', root], { stdio: 'ignore' }),
    job: async () => JSON.parse(await readFile(join(root, 'var/run/sqm-autotune/job.json'), 'utf8')),
    open: async (search = '', width = 360) => {
      const context = await browser.newContext({ viewport: { width, height: 740 } });
      contexts.push(context);
      const page = await context.newPage();
      page.setDefaultTimeout(60_000);
      page.on('console', message => message.type() === 'error' && complaints.push(message.text()));
      page.on('pageerror', error => complaints.push(String(error)));
      await page.goto(`${ours.address}?${search}`);
      page.first = await page.evaluate(() => window.shown);
      return page;
    },
    end: async () => {
      for (const context of contexts) await context.close();
      await ours.close();
      const job = await ours.job().catch(() => null);
      if (job && !job.end) try { process.kill(job.pid, 'SIGKILL'); } catch { /* gone already */ }
      await rm(root, { recursive: true, force: true });
    },
  });
  return ours;
}

const button = (page, name) => page.getByRole('button', { name, exact: true });
const sees = (page, text) => page.getByText(text).first().waitFor();

/** What holds in every state: nothing serious for axe, nothing scrolls sideways; a picture to look at. */
async function holds(page, name) {
  await page.evaluate(axe);
  for (const theme of ['light', 'dark']) {
    await page.evaluate(dark => {
      document.body.style.background = dark ? '#222' : '#fff';
      document.body.style.color = dark ? '#ddd' : '#222';
    }, theme === 'dark');
    const { violations } = await page.evaluate(() => window.axe.run(document.getElementById('view')));
    const serious = violations.filter(found => ['serious', 'critical'].includes(found.impact));
    assert.deepEqual(serious.map(found => `${found.id}: ${found.nodes[0].html}`), [], `${name}, ${theme}`);
    await page.screenshot({ path: join(screens, `${name}-${theme}.png`), fullPage: true });
  }
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(wide, 0, `${name} scrolls sideways`);
}

const tests = {
  async 'a line that was never tuned'() {
    const ours = await router();
    const page = await ours.open();
    await sees(page, 'has never been tuned');
    await sees(page, /About .* MB/);
    await sees(page, /^pppoe-wan \(.*VDSL.*\) syncs at 18,000 kbit\/s up and 67,000 down\. SQM shapes it: 15,000 up, 60,000 down\.$/);
    assert.deepEqual(page.first.sort(), ['outcome', 'status']);
    // LuCI polls at once.
    assert.deepEqual(ours.asked.slice(2), ['status']);
    assert.equal(await button(page, 'Apply').isVisible(), false);
    await holds(page, 'never-tuned');
    return ours;
  },

  async 'calibrate, reload in the middle, a second tab, apply, revert'() {
    const ours = await router();
    const page = await ours.open('hurry=4');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await button(page, 'Cancel').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Cancel');
    await page.locator('.sqma-mark').nth(1).waitFor();
    assert.ok(await page.locator('.sqma-curve').count());
    assert.equal(await page.locator('li.sqma-running').count(), 1);
    // It stands still while it is looked at: how long that takes is the machine's affair.
    const { began, pid } = await ours.job();
    process.kill(pid, 'SIGSTOP');
    await holds(page, 'running');
    await page.reload();
    await button(page, 'Cancel').waitFor();
    await page.locator('.sqma-curve').waitFor();
    const tried = await page.locator('.sqma-mark').count();
    const other = await ours.open('hurry=4', 1100);
    await button(other, 'Cancel').waitFor();
    assert.equal(await button(other, 'Calibrate').isVisible(), false);
    process.kill(pid, 'SIGCONT');
    await page.locator('.sqma-mark').nth(tried).waitFor();
    assert.equal((await ours.job()).began, began);
    await button(page, 'Apply').waitFor();
    await button(other, 'Apply').waitFor();
    await sees(page, /Grade \S+ before, A\+? after/);
    assert.equal(await page.locator('.sqma-bar').count(), 3);
    await sees(page, 'What would be written for pppoe-wan');
    assert.equal(await ours.sqm(), SQM);
    await holds(page, 'tuned');
    await holds(other, 'tuned-wide');
    await button(page, 'Apply').click();
    await sees(page, 'Written. SQM uses the new settings now');
    await button(page, 'Revert').waitFor();
    assert.notEqual(await ours.sqm(), SQM);
    await holds(page, 'applied');
    await button(page, 'Revert').click();
    await sees(page, 'Undone.');
    await button(page, 'Apply').waitFor();
    assert.equal(await ours.sqm(), SQM);
    await button(page, 'Discard').click();
    assert.equal(await button(page, 'Apply').isVisible(), false);
    await page.getByText('History', { exact: true }).click();
    await page.getByRole('button', { name: /^Show / }).click();
    await page.locator('details .sqma-bar').nth(2).waitFor();
    await page.getByText('Findings', { exact: true }).click();
    await page.getByText('WireGuard', { exact: true }).click();
    await sees(page, 'No WireGuard tunnel');
    await holds(page, 'folds');
    return ours;
  },

  async 'cancel'() {
    const ours = await router();
    const page = await ours.open('hurry=4');
    await button(page, 'Calibrate').click();
    await page.locator('.sqma-curve').waitFor();
    await button(page, 'Cancel').click();
    await sees(page, 'Stopped. The line is as it was before.');
    await button(page, 'Calibrate').waitFor();
    assert.equal((await ours.job()).end.exit, 'stopped');
    await holds(page, 'stopped');
    return ours;
  },

  async 'a second tab that does not know yet'() {
    const ours = await router();
    const page = await ours.open('hurry=4');
    const other = await ours.open();
    await button(page, 'Calibrate').click();
    await page.locator('.sqma-curve').waitFor();
    await button(other, 'Calibrate').click();
    await sees(other, 'Another run is going on');
    await holds(other, 'busy');
    await button(page, 'Cancel').click();
    await sees(other, 'Stopped.');
    assert.equal(await other.getByText('Another run is going on').count(), 0);
    return ours;
  },

  async 'a run that cron started is noticed, and nothing is asked often before it'() {
    const ours = await router();
    const page = await ours.open('hurry=40');
    await page.waitForTimeout(1400);
    // 56 of its seconds: at 30 s one or two questions more.
    const asked = ours.asked.filter(method => method === 'status').length;
    assert.ok(asked >= 2 && asked <= 4, `${asked} questions`);
    ours.background('calibrate', '--json', '--line', 'sim:vdsl2-pppoe', '--pace', SLOW);
    await button(page, 'Cancel').waitFor();
    await sees(page, 'Calibrating');
    return ours;
  },

  async 'a run that was killed'() {
    const ours = await router();
    const page = await ours.open('hurry=4');
    await button(page, 'Calibrate').click();
    await page.locator('.sqma-curve').waitFor();
    process.kill((await ours.job()).pid, 'SIGKILL');
    await sees(page, 'broke off without a word');
    await button(page, 'Calibrate').waitFor();
    await holds(page, 'interrupted');
    return ours;
  },

  async 'inconclusive'() {
    const ours = await router('lte', FAST);
    await ours.cli('calibrate', '--json', '--line', 'sim:lte');
    const page = await ours.open();
    await sees(page, 'No settings, since the measurements cannot be relied on');
    assert.equal(await button(page, 'Apply').isVisible(), false);
    await holds(page, 'inconclusive');
    return ours;
  },

  async 'unneeded'() {
    const ours = await router('good-modem', FAST);
    await ours.cli('calibrate', '--json', '--line', 'sim:good-modem');
    const page = await ours.open();
    await sees(page, 'Nothing to tune');
    assert.equal(await button(page, 'Apply').isVisible(), false);
    await holds(page, 'unneeded');
    return ours;
  },

  async 'refused: the configuration cannot be read'() {
    const ours = await router('vdsl2-pppoe', FAST);
    await ours.cli('calibrate', '--json', '--line', 'sim:vdsl2-pppoe', '--direction', 'upload');
    const page = await ours.open('hurry=4');
    await button(page, 'Apply').waitFor();
    await writeFile(join(ours.root, 'etc/config/sqm'), 'config queue\n\toption broken "\n');
    await button(page, 'Apply').click();
    await sees(page, 'Not started.');
    await page.reload();
    await sees(page, 'What shapes it cannot be read.');
    await sees(page, 'This cannot be written:');
    assert.equal(await button(page, 'Apply').isVisible(), false);
    await holds(page, 'refused');
    return ours;
  },

  async 'a login that may only read'() {
    const ours = await router('vdsl2-pppoe', FAST);
    ours.login = 'reader';
    await ours.cli('calibrate', '--json', '--line', 'sim:vdsl2-pppoe', '--direction', 'upload');
    const page = await ours.open('login=reader');
    await sees(page, 'may look at everything and change nothing');
    await sees(page, 'What would be written');
    for (const name of ['Calibrate', 'Apply', 'Discard']) assert.ok(await button(page, name).isDisabled(), name);
    await holds(page, 'reader');
    return ours;
  },

  async 'no agent, another version, an expired session'() {
    const ours = await router();
    ours.agent = 'missing';
    const page = await ours.open('hurry=4');
    await sees(page, 'The agent does not answer on the router');
    assert.ok(await button(page, 'Calibrate').isDisabled());
    await holds(page, 'missing');
    ours.agent = 'other';
    await sees(page, 'another version than this page');
    await holds(page, 'other-version');
    ours.agent = 'broken';
    await sees(page, 'The agent does not answer on the router');
    ours.agent = 'there';
    await page.locator('.sqma-notice').waitFor({ state: 'detached' });
    await sees(page, 'has never been tuned');
    ours.login = 'none';
    await button(page, 'Calibrate').click();
    await sees(page, 'The session has expired');
    assert.equal(await page.locator('.sqma-notice').count(), 1);
    await holds(page, 'expired');
    // LuCI shows that on its own too, and polls no more until somebody logs in.
    const asked = ours.asked.length;
    await page.waitForTimeout(2000);
    assert.equal(ours.asked.length, asked);
    ours.login = 'owner';
    await page.reload();
    await sees(page, 'has never been tuned');
    return ours;
  },

  async 'a router that restarts'() {
    const ours = await router('vdsl2-pppoe', FAST);
    await ours.cli('calibrate', '--json', '--line', 'sim:vdsl2-pppoe', '--direction', 'upload');
    const page = await ours.open('hurry=20');
    await button(page, 'Apply').waitFor();
    ours.agent = 'dead';
    await sees(page, 'it may be restarting');
    await button(page, 'Calibrate').waitFor();
    await holds(page, 'restarting');
    ours.agent = 'there';
    await page.getByText('it may be restarting').waitFor({ state: 'detached' });
    await button(page, 'Apply').waitFor();
    ours.agent = 'dead';
    await button(page, 'Calibrate').click();
    await sees(page, 'it may be restarting');
    assert.equal(await page.getByText('it may be restarting').count(), 1);
    await rm(join(ours.root, 'var'), { recursive: true });
    ours.agent = 'there';
    await sees(page, 'has never been tuned');
    const other = ours.complaints.filter(text => !text.includes('Failed to load resource'));
    assert.deepEqual(other, []);
    ours.complaints.length = 0;
    return ours;
  },

  async 'what the agent says is text, never HTML'() {
    const ours = await router('vdsl2-pppoe', FAST);
    await ours.cli('calibrate', '--json', '--line', 'sim:vdsl2-pppoe', '--direction', 'upload');
    const evil = '<img src=x onerror="window.evil=1">';
    const spoil = value => {
      if (typeof value === 'string') return value + evil;
      if (Array.isArray(value)) return value.map(spoil);
      if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, ['curve', 'state', 'kind'].includes(key) ? child : spoil(child)]));
      return value;
    };
    ours.altered = (method, answer) => spoil(answer);
    const page = await ours.open();
    await page.getByText('History', { exact: true }).click();
    await page.getByText('Findings', { exact: true }).click();
    await page.locator('details table').waitFor();
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate(() => window.evil), undefined);
    return ours;
  },

  async 'German, and every word has a translation'() {
    const ours = await router('vdsl2-pppoe', FAST);
    const words = await used();
    assert.deepEqual(Object.keys(await template()).sort(), words);
    const german = await messages('de');
    assert.deepEqual(words.filter(text => !german[text]), []);
    for (const text of words) assert.equal(german[text].split('%s').length, text.split('%s').length, text);
    const page = await ours.open('words=de');
    await sees(page, german['SQM Autotune']);
    assert.ok(await button(page, german.Calibrate).isVisible());
    return ours;
  },

  async 'the settings take what the agent takes'() {
    const ours = await router();
    const page = await ours.open('page=settings');
    const names = await page.locator('input').evaluateAll(inputs => inputs.map(input => input.name));
    const judged = VALUES.map(([name]) => name);
    const free = ['autotune.enabled', 'autotune.keep_last', 'line.interface'];
    assert.deepEqual([...judged, ...free].sort(), names.sort());
    const differ = [];
    for (const [name, good, bad] of VALUES) {
      const [kind, option] = name.split('.');
      for (const value of [...good, ...bad]) {
        await page.locator(`input[name="${name}"]`).fill(value);
        const page_takes = await page.locator(`input[name="${name}"]`).getAttribute('aria-invalid') === 'false';
        await writeFile(join(ours.root, 'etc/config/sqm-autotune'), `config ${kind}\n\toption ${option} '${value}'\n`);
        const agent_takes = (await ours.cli('check')).code !== 2;
        if (page_takes !== good.includes(value) || agent_takes !== good.includes(value)) differ.push({ name, value, page_takes, agent_takes });
      }
    }
    assert.deepEqual(differ, []);
    return ours;
  },

  async 'the settings are those of the agent, and the app is small'() {
    const ours = await router();
    const page = await ours.open('page=settings');
    const shown = await page.locator('input').evaluateAll(inputs => inputs.map(input => input.name));
    const config = await readFile(join(app, '../openwrt-package/files/etc/config/sqm-autotune'), 'utf8');
    const known = [];
    let section = '';
    for (const line of config.split('\n')) {
      const [, kind] = line.match(/^#?config (\S+)/) ?? [];
      const [, option] = line.match(/^\t#?(?:option|list) (\S+)/) ?? [];
      if (kind) section = kind;
      if (option) known.push(`${section}.${option}`);
    }
    // A command is for the console: who may use the page need not be who may run programs.
    assert.deepEqual(shown.sort(), known.filter(name => name !== 'line.sync_command').sort());
    let size = 0;
    for (const part of ['htdocs', 'root']) {
      for (const name of await readdir(join(app, part), { recursive: true })) {
        const file = await stat(join(app, part, name));
        if (file.isFile()) size += file.size;
      }
    }
    assert.ok(size > 10_000 && size < 60_000, `${size} bytes`);
    return ours;
  },
};

let passed = 0, failed = 0;
for (const [name, test] of Object.entries({ ...renderTests(router), ...tests })) {
  if (wanted.length && !wanted.some(word => name.includes(word))) continue;
  const begun = Date.now();
  let ours;
  try {
    ours = await test();
    assert.deepEqual(ours.complaints, [], 'the console');
    passed++;
    console.log(`ok: ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed++;
    console.log(`FAILED: ${name}: ${error.message}`);
  }
  await ours?.end();
}
await browser.close();
console.log(`${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed || !passed ? 1 : 0);
