// The functions that make elements of a reply, one by one, with replies of the real agent. They are called in a browser, since
// elements are what they give; nothing is clicked, polled or asked there.
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const FAST = '4000';

/** What render's function says, part by part; called twice, it says the same and leaves its reply alone. */
function drawn(page, name, ...given) {
  return page.evaluate(([name, given]) => {
    const render = modules['sqm-autotune.render'], before = JSON.stringify(given);
    const make = () => {
      const place = document.createElement('div');
      dom.append(place, render[name](...given));
      return place;
    };
    const place = make();
    if (place.innerHTML !== make().innerHTML) throw new Error('not the same twice');
    if (JSON.stringify(given) !== before) throw new Error('the reply was changed');
    const texts = selector => [...place.querySelectorAll(selector)].map(node => node.textContent);
    return {
      text: place.textContent,
      kinds: [...place.querySelectorAll('.sqma-notice')].map(node => node.className.match(/sqma-(good|warn|bad)/)[1]),
      heads: texts('h3'), strong: texts('strong'), items: texts('li'), figures: texts('figcaption'),
      rows: [...place.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.textContent)),
      places: [...place.querySelectorAll('svg')].map(svg => ({
        frame: svg.getAttribute('viewBox').split(' ').map(Number), label: svg.getAttribute('aria-label'),
        marks: svg.querySelectorAll('.sqma-mark').length, bars: svg.querySelectorAll('.sqma-bar').length,
        curve: (svg.querySelector('.sqma-curve')?.getAttribute('points') ?? '').split(/[ ,]/).filter(Boolean).map(Number),
      })),
    };
  }, [name, given]);
}

export const renderTests = router => {
  /** A router on which that line has been calibrated, and what its agent replies. */
  const calibrated = async (line, ...more) => {
    const ours = await router(line, FAST);
    await ours.cli('calibrate', '--json', '--line', `sim:${line}`, ...more);
    return [ours, await ours.open(), await ours.ask('outcome')];
  };

  return {
    async 'render: a tuned line'() {
      const [ours, page, reply] = await calibrated('vdsl2-pppoe');
      const { outcome } = reply;
      const summary = await drawn(page, 'summary', outcome);
      assert.ok(summary.text.startsWith(outcome.verdict + outcome.meaning), summary.text);
      assert.match(outcome.verdict, /^Set the upload to 1[67],\d{3} kbit\/s/);
      assert.deepEqual(summary.kinds.slice(0, 1), ['good']);
      assert.ok(summary.text.includes(`Grade ${outcome.grade_before} before, ${outcome.grade_after} after`));
      assert.deepEqual(summary.rows[0], ['', 'before', 'after']);
      assert.deepEqual(summary.rows.slice(1).map(row => row.slice(1)), outcome.rows.map(row => [row.before, row.after]));
      assert.deepEqual(summary.rows.slice(1, 3).map(row => row[0]), ['Grade', 'Delay, median / 95 %']);
      assert.equal(summary.places[0].bars, 3);

      const changes = await drawn(page, 'changes', outcome);
      assert.deepEqual(changes.heads, ['What would be written for pppoe-wan']);
      assert.deepEqual(changes.rows[0], ['Option', 'now', 'then']);
      assert.deepEqual(changes.rows[1], ['upload', '15000', String(outcome.changes.changes[0].new)]);
      assert.equal(changes.rows.length, outcome.changes.changes.length + 1);

      const evidence = await drawn(page, 'evidence', outcome);
      assert.deepEqual(evidence.strong.slice(0, 2), ['Upload: ', 'Overhead: ']);
      assert.equal(evidence.items.length, outcome.reasons.length);
      assert.ok(evidence.text.endsWith(outcome.spent));
      const [picture] = evidence.places;
      assert.equal(picture.marks, outcome.upload.points.length);
      assert.ok(picture.marks >= 3 && picture.label.includes('kbit/s'), picture.label);
      assert.equal((await drawn(page, 'line', reply)).text, reply.line);

      await ours.cli('apply');
      const after = await ours.ask('outcome');
      assert.match((await drawn(page, 'line', after)).text, /, grade A\+?\. Tuned .*20\d\d.*\.$/);
      const same = await drawn(page, 'changes', after.outcome);
      assert.deepEqual([same.text, same.kinds], ['SQM has these settings already.', ['good']]);
      return ours;
    },

    async 'render: nothing to tune, nothing to rely on, nothing measured'() {
      const [ours, page, { outcome: unneeded }] = await calibrated('good-modem');
      const fine = await drawn(page, 'summary', unneeded);
      assert.equal(fine.kinds[0], 'good');
      assert.ok(fine.text.startsWith('Nothing to tune'), fine.text);
      assert.equal((await drawn(page, 'changes', unneeded)).text, '');
      await ours.cli('calibrate', '--json', '--line', 'sim:lte');
      const { outcome: lte } = await ours.ask('outcome');
      const vague = await drawn(page, 'summary', lte);
      assert.equal(vague.kinds[0], 'warn');
      assert.ok(vague.text.startsWith('No settings, since'), vague.text);
      assert.deepEqual(vague.heads, lte.doubts.length ? ['Doubts'] : []);
      for (const doubt of lte.doubts) assert.ok(vague.text.includes(`${doubt.text} ${doubt.todo}`), doubt.code);
      assert.equal((await drawn(page, 'changes', lte)).text, '');
      assert.match((await drawn(page, 'summary', null)).text, /^This line has never been tuned/);
      await ours.cli('calibrate', '--json', '--line', 'sim:lte', '--max-mbytes', '1');
      const { outcome: none } = await ours.ask('outcome');
      assert.deepEqual((await drawn(page, 'summary', none)).rows, []);
      // What was refused before the start has no line.
      assert.equal((await drawn(page, 'evidence', { ...none, line: '' })).text, '');
      for (const part of ['evidence', 'changes']) assert.equal((await drawn(page, part, null)).text, '');
      return ours;
    },

    async 'render: a run that goes on'() {
      const ours = await router('vdsl2-pppoe', '10');
      const page = await ours.open();
      await ours.ask('start');
      let status;
      do {
        await new Promise(later => setTimeout(later, 100));
        status = await ours.ask('status');
      } while (status.state === 'running' && (status.job.upload?.points.length ?? 0) < 2);
      const shown = await drawn(page, 'progress', status);
      assert.deepEqual(shown.heads, ['Calibrating']);
      assert.deepEqual(shown.items.slice(0, 3), ['✓ Idle line (done)', '✓ Without a limit (done)', '✓ Overhead (done)']);
      assert.equal(shown.items.filter(text => text.startsWith('▶ ') && text.endsWith(' (running)')).length, 1);
      assert.ok(shown.items.includes('○ Both directions (waiting)'), shown.items.join());
      assert.ok(shown.text.includes(status.job.now_words.join(' · ')), shown.text);
      assert.deepEqual(shown.figures.slice(0, 2), ['Added delay over time, in ms', 'Upload: added delay of each rate, ms against kbit/s']);
      const [time, rate] = shown.places;
      assert.equal(rate.marks, status.job.upload.points.length);
      for (let n = 0; n < time.curve.length; n += 2)
        assert.ok(time.curve[n] >= 0 && time.curve[n] <= time.frame[2] && time.curve[n + 1] >= 0 && time.curve[n + 1] <= time.frame[3], `${time.curve.slice(n, n + 2)}`);
      assert.ok(time.curve.length > 20);
      assert.equal((await drawn(page, 'ending', status)).text, '');

      await ours.ask('cancel');
      do {
        await new Promise(later => setTimeout(later, 100));
        status = await ours.ask('status');
      } while (status.state === 'running');
      assert.equal((await drawn(page, 'progress', status)).text, '');
      const ending = async (end, what = 'calibrate', state = 'ended') => {
        const { kinds: [kind], text } = await drawn(page, 'ending', { ...status, state, job: { ...status.job, what, end } });
        return [kind, text.split(/[.:;]/)[0]];
      };
      assert.deepEqual(await ending(status.job.end), ['good', 'Stopped']);
      assert.deepEqual(await ending({ exit: 'done' }), [undefined, '']);
      assert.deepEqual(await ending({ exit: 'done' }, 'apply'), ['good', 'Written']);
      assert.deepEqual(await ending({ exit: 'done' }, 'revert'), ['good', 'Undone']);
      assert.deepEqual(await ending({ exit: 'inconclusive', reason: 'x' }), [undefined, '']);
      assert.deepEqual(await ending({ exit: 'refused', reason: 'x' }), ['warn', 'Not started']);
      assert.deepEqual(await ending({ exit: 'failed', reason: 'x' }), ['bad', 'It did not work']);
      assert.deepEqual(await ending(null, 'calibrate', 'interrupted'), ['warn', 'The last run broke off without a word']);
      return ours;
    },

    async 'render: why there is no reply'() {
      const ours = await router();
      const page = await ours.open();
      const said = async error => {
        const { kinds: [kind], text } = await drawn(page, 'failure', error);
        return [kind, text.split(' ').slice(0, 4).join(' ')];
      };
      const failed = rest => ({ name: 'RPCError', message: `RPC call to sqm-autotune/status failed with ${rest}` });
      assert.deepEqual(await said(failed('error -32000: Object not found')), ['bad', 'The agent does not']);
      assert.deepEqual(await said(failed('ubus code 9: Unknown error')), ['bad', 'The agent does not']);
      assert.deepEqual(await said(failed('error -32002: Access denied')), ['warn', 'The session has expired,']);
      assert.deepEqual(await said({ name: 'SessionError', message: 'Login session is expired' }), ['warn', 'The session has expired,']);
      assert.deepEqual(await said({ name: 'Error', message: 'XHR request aborted by browser' }), ['warn', 'The router does not']);
      assert.deepEqual(await said({}), ['warn', 'The router does not']);
      assert.deepEqual(await said(null), ['bad', 'The agent on the']);
      const { error } = await ours.ask('outcome', { id: 'nonsense' });
      assert.equal((await drawn(page, 'refusal', error)).text, error.text);
      assert.match((await drawn(page, 'refusal', { code: 'busy', text: 'x' })).text, /^Another run is going on/);
      const fits = reply => page.evaluate(reply => modules['sqm-autotune.render'].fits(reply), reply);
      assert.deepEqual([await fits(await ours.ask('status')), await fits({ format: 2 }), await fits(null)], [true, false, false]);
      return ours;
    },

    async 'render: history, findings, advice'() {
      const [ours, page] = await calibrated('vdsl2-pppoe', '--direction', 'upload');
      await ours.cli('apply');
      await ours.cli('calibrate', '--json', '--line', 'sim:good-modem');
      const history = await ours.ask('history');
      const { rows } = await drawn(page, 'history', history);
      assert.deepEqual(rows[0].slice(1, 5), ['Result', 'Upload', 'Download', 'Grade']);
      assert.deepEqual(rows.slice(1).map(row => row[1]), ['not needed', 'tuned (written)']);
      assert.match(rows[2][4], /^[B-F] → A\+?$/);
      assert.equal(rows[2][2], String(history.outcomes[1].upload_kbit));
      const asked = await page.evaluate(history => {
        const ids = [], table = modules['sqm-autotune.render'].history(history, id => ids.push(id));
        table.querySelectorAll('button').forEach(button => button.click());
        return ids;
      }, history);
      assert.deepEqual(asked, history.outcomes.map(entry => entry.id));

      await writeFile(join(ours.root, 'etc/config/sqm'), "config queue\n\toption interface 'pppoe-wan'\n\toption enabled 'true'\n\toption upload '17000'\n\toption linklayer 'none'\n\toption overhead '34'\n");
      const { findings } = await ours.ask('findings');
      assert.ok(findings.length, 'the agent found nothing');
      const found = await drawn(page, 'findings', { findings });
      assert.deepEqual(found.kinds, findings.map(finding => ({ error: 'bad', warning: 'warn', info: 'good' })[finding.severity]));
      assert.deepEqual(found.strong[0], `Error, ${findings[0].where}: `);
      for (const finding of findings) assert.ok(found.text.includes(`${finding.text} ${finding.fix}`), finding.code);
      assert.match((await drawn(page, 'findings', { findings: [] })).text, /^Nothing is wrong/);

      await writeFile(join(ours.root, 'etc/config/network'), "config interface 'wan'\n\toption device 'eth1'\n\toption proto 'pppoe'\n\nconfig interface 'wg0'\n\toption proto 'wireguard'\n\toption mtu '1420'\n\nconfig wireguard_wg0\n\toption endpoint_host '2001:db8::1'\n");
      const advice = await ours.ask('advice');
      const told = await drawn(page, 'advice', advice);
      assert.deepEqual(told.rows[1], ['wg0', '1420', '1412', 'lower the MTU']);
      assert.deepEqual(told.items, [`wg0: ${advice.tunnels[0].why}`]);
      assert.match((await drawn(page, 'advice', { tunnels: [] })).text, /^No WireGuard tunnel/);
      return ours;
    },
  };
};
