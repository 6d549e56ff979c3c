'use strict';
'require baseclass';
'require sqm-autotune.draw as draw';

/* Pure: a reply of the agent goes in, elements come out. */

/* The replies that this page understands. */
const FORMAT = 1;

const STYLE = [
	'.sqma{max-width:60rem}',
	'.sqma [hidden]{display:none!important}',
	'.sqma h3{margin:1.2em 0 .4em}',
	'.sqma p,.sqma li,.sqma tbody th{overflow-wrap:anywhere}',
	'.sqma li,.sqma .cbi-map-descr{color:inherit}',
	'.sqma table{border-collapse:collapse;width:100%}',
	'.sqma th,.sqma td{text-align:left;padding:.3em .6em .3em 0;border-bottom:1px solid rgba(128,128,128,.4);vertical-align:top}',
	'.sqma-grades{font-size:1.6em;margin:.3em 0}',
	'.sqma-notice{border-left:4px solid;padding:.5em .8em;margin:.6em 0}',
	'.sqma-good{border-color:#2e9e4f}.sqma-warn{border-color:#c98a00}.sqma-bad{border-color:#d0453a}',
	'.sqma-stages{list-style:none;margin:.5em 0;padding:0;display:flex;flex-wrap:wrap;gap:.2em 1.2em}',
	'.sqma-stages .sqma-running{font-weight:bold}',
	'.sqma-drawings{margin:.8em 0;display:flex;flex-wrap:wrap;gap:1em}',
	'.sqma-figure{flex:1 1 17rem;min-width:0;max-width:34rem;margin:0}',
	'.sqma-figure svg{width:100%;height:auto;display:block}',
	'.sqma-figure text{fill:currentColor;font-size:11px}',
	'.sqma-grid{stroke:currentColor;stroke-opacity:.2}',
	'.sqma-bound{stroke:currentColor;stroke-dasharray:4 3}',
	'.sqma-chosen{stroke:#2e9e4f;stroke-width:2;stroke-dasharray:1 3}',
	'.sqma-curve{fill:none;stroke:#3b82c4;stroke-width:1.5}',
	'.sqma-mark{stroke-width:2;fill:none}',
	'.sqma-mark.sqma-clean{stroke:#2e9e4f;fill:#2e9e4f}.sqma-mark.sqma-bloated{stroke:#d0453a}.sqma-mark.sqma-inconclusive{stroke:#c98a00}',
	'.sqma-last{stroke-width:3}',
	'.sqma-bar rect{fill:#3b82c4}',
	'.sqma-buttons{display:flex;flex-wrap:wrap;gap:.5em;align-items:center;margin:.6em 0}',
	'.sqma summary{cursor:pointer;font-weight:bold;padding:.5em 0}',
	'.sqma-wide{overflow-x:auto}'
].join('\n');

const STAGES = {
	idle: _('Idle line'),
	unshaped: _('Without a limit'),
	overhead: _('Overhead'),
	search: _('Search'),
	target: _('Target'),
	verify: _('Check'),
	download: _('Download'),
	both: _('Both directions')
};

const STATES = {
	waiting: [ '○', _('waiting') ],
	running: [ '▶', _('running') ],
	done: [ '✓', _('done') ],
	skipped: [ '–', _('left out') ]
};

const ROWS = {
	grade: _('Grade'),
	delay: _('Delay, median / 95 %'),
	upload: _('Upload throughput'),
	download: _('Download throughput')
};

const REASONS = {
	upload: _('Upload'),
	download: _('Download'),
	overhead: _('Overhead'),
	target: _('Target'),
	'ack-filter': _('ACK filter')
};

const BARS = { idle: _('idle'), before: _('before'), after: _('after') };

const OUTCOMES = {
	tuned: _('tuned'),
	unneeded: _('not needed'),
	graded: _('graded'),
	inconclusive: _('inconclusive'),
	failed: _('failed'),
	refused: _('refused')
};

const SEVERITIES = { error: _('Error'), warning: _('Warning'), info: _('Note') };

const ACTIONS = { lower: _('lower the MTU'), raise: _('raise the MTU'), keep: _('fine as it is') };

function notice(kind, parts) {
	return E('div', { 'class': 'sqma-notice sqma-' + kind }, parts);
}

/* How the agent and this page write what is not known. */
const NOTHING = '–';

function known(value) {
	return value == null ? NOTHING : String(value);
}

/* A moment, as the reader's browser writes it. */
function time(moment) {
	return new Date(moment).toLocaleString();
}

function rate(kbit) {
	return kbit === 0 ? _('not shaped') : known(kbit);
}

function table(heads, rows, label) {
	return E('div', { 'class': 'sqma-wide', 'tabindex': '0', 'role': 'region', 'aria-label': label }, [ E('table', {}, [
		E('thead', {}, [ E('tr', {}, heads.map(head => E('th', { 'scope': 'col' }, [ head ]))) ]),
		E('tbody', {}, rows.map(row => E('tr', {}, row.map((cell, n) =>
			n ? E('td', {}, [ cell ]) : E('th', { 'scope': 'row' }, [ cell ])))))
	]) ]);
}

return baseclass.extend({
	style: function() {
		return E('style', {}, [ STYLE ]);
	},

	/* Whether the agent speaks as this page expects. */
	fits: function(reply) {
		return reply != null && reply.format === FORMAT;
	},

	/* Why there is no reply, in words; error: what rpc.declare rejected with, or null where the reply does not fit. */
	failure: function(error) {
		if (error == null)
			return notice('bad', [ _('The agent on the router is of another version than this page. Update both packages, then reload the page.') ]);
		/* LuCI's errors have their code in the text only. */
		switch ((/-3200\d|ubus code/.exec(error.message) || [ error.name ])[0]) {
		case '-32002':
		case 'SessionError':
			return notice('warn', [ _('The session has expired, or this user may not see the page. Log in again.') ]);
		case '-32000':
		case 'ubus code':
			return notice('bad', [ _('The agent does not answer on the router. Is the package sqm-autotune installed? After an installation, reload rpcd or restart the router.') ]);
		default:
			return notice('warn', [ _('The router does not answer at the moment; it may be restarting. This page goes on trying.') ]);
		}
	},

	/* An error that a method replied with. */
	refusal: function(error) {
		return notice('warn', [ error.code === 'busy' ? _('Another run is going on: wait for its end, or stop it.') : error.text ]);
	},

	/* What the last run came to, where the outcome itself does not say it. */
	ending: function(status) {
		const job = status.job, end = job && job.end;
		if (status.state === 'interrupted')
			return notice('warn', [ _('The last run broke off without a word: killed, or the power failed. Start again: what it left on the router is put back first.') ]);
		if (status.state !== 'ended')
			return '';
		if (end.exit === 'stopped')
			return notice('good', [ _('Stopped. The line is as it was before.') ]);
		if (end.exit === 'done') {
			switch (job.what) {
			case 'apply':
				return notice('good', [ _('Written. SQM uses the new settings now; Revert undoes it.') ]);
			case 'revert':
				return notice('good', [ _('Undone. The configuration is what it was before.') ]);
			default:
				return '';
			}
		}
		if (end.exit === 'inconclusive')
			return '';
		if (end.exit === 'refused')
			return notice('warn', [ E('strong', {}, [ _('Not started.') ]), ' ', known(end.reason) ]);
		return notice('bad', [ E('strong', {}, [ _('It did not work.') ]), ' ', known(end.reason) ]);
	},

	/* A run that goes on. */
	progress: function(status) {
		const job = status.job;
		if (status.state !== 'running')
			return '';
		const what = { calibrate: _('Calibrating'), apply: _('Writing the settings'), revert: _('Undoing the last write') }[job.what];
		return E('div', {}, [
			E('h3', {}, [ what ]),
			E('p', {}, [ _('Started %s.').format(time(job.began)), ' ', job.left ? _('About %s left.').format(job.left) : '' ]),
			E('ol', { 'class': 'sqma-stages' }, job.stages.map(stage => E('li', { 'class': 'sqma-' + stage.state }, [
				E('span', { 'aria-hidden': 'true' }, [ STATES[stage.state][0] + ' ' ]),
				STAGES[stage.name] || stage.name,
				' (' + STATES[stage.state][1] + ')'
			]))),
			E('p', {}, [ job.now_words.join(' · ') ]),
			E('div', { 'class': 'sqma-drawings' }, [
				draw.drawing(job.over_time, _('Added delay over time, in ms')),
				draw.drawing(job.upload, _('Upload: added delay of each rate, ms against kbit/s')),
				draw.drawing(job.download, _('Download: added delay of each rate, ms against kbit/s'))
			]),
			E('ul', {}, job.notes.map(note => E('li', {}, [ note ])))
		]);
	},

	/* The line in one sentence, and since when it is tuned. */
	line: function(reply) {
		return [ reply.line, reply.tuned ? ' ' + _('Tuned %s.').format(time(reply.tuned)) : '' ];
	},

	/* What somebody who reads nothing else should see before they decide. */
	summary: function(outcome) {
		if (!outcome)
			return E('p', {}, [ _('This line has never been tuned. Press Calibrate: it takes about a minute and writes nothing by itself.') ]);
		const kind = { tuned: 'good', unneeded: 'good', graded: 'good', inconclusive: 'warn' }[outcome.outcome] || 'bad';
		const parts = [
			notice(kind, [ E('strong', {}, [ outcome.verdict ]) ]),
			outcome.meaning ? E('p', {}, [ outcome.meaning ]) : ''
		];
		if (outcome.grade_before)
			parts.push(E('p', { 'class': 'sqma-grades' }, [ outcome.grade_after ? _('Grade %s before, %s after').format(outcome.grade_before, outcome.grade_after) : _('Grade %s').format(outcome.grade_before) ]));
		if (outcome.rows.some(row => row.before !== NOTHING || row.after !== NOTHING))
			parts.push(table([ '', _('before'), _('after') ], outcome.rows.map(row => [ ROWS[row.name] || row.name, row.before, row.after ]), _('Before and after')));
		parts.push(E('div', { 'class': 'sqma-drawings' }, [ draw.drawing(outcome.before_and_after, _('Round-trip times, median to 95 %, in ms'), BARS) ]));
		if (outcome.doubts.length)
			parts.push(E('h3', {}, [ _('Doubts') ]), E('div', {}, outcome.doubts.map(doubt =>
				notice('warn', [ doubt.text, ' ', E('em', {}, [ doubt.todo ]) ]))));
		return E('div', {}, parts);
	},

	/* What it rests on. */
	evidence: function(outcome) {
		if (!outcome)
			return '';
		const parts = [];
		if (outcome.reasons.length)
			parts.push(E('h3', {}, [ _('Why') ]), E('ul', {}, outcome.reasons.map(reason =>
				E('li', {}, [ E('strong', {}, [ (REASONS[reason.name] || reason.name) + ': ' ]), reason.text ]))));
		parts.push(E('div', { 'class': 'sqma-drawings' }, [
			draw.drawing(outcome.upload, _('Upload: added delay of each rate, ms against kbit/s')),
			draw.drawing(outcome.download, _('Download: added delay of each rate, ms against kbit/s'))
		]));
		if (outcome.line)
			parts.push(E('p', {}, [ _('Measured %s on %s.').format(time(outcome.started), outcome.line), ' ', outcome.spent ]));
		return E('div', {}, parts);
	},

	/* What Apply would write. */
	changes: function(outcome) {
		if (!outcome || (!outcome.changes && !outcome.obstacle && !outcome.written))
			return '';
		if (outcome.obstacle)
			return notice('warn', [ E('strong', {}, [ _('This cannot be written:') ]), ' ', outcome.obstacle ]);
		if (!outcome.changes)
			return notice('good', [ _('SQM has these settings already.') ]);
		const list = outcome.changes;
		return E('div', {}, [
			E('h3', {}, [ _('What would be written for %s').format(list.device) ]),
			table([ _('Option'), _('now'), _('then') ], list.changes.map(change => [ change.option, known(change.old), known(change['new']) ]), _('Changes')),
			E('ul', {}, list.notes.map(note => E('li', {}, [ note ])))
		]);
	},

	/* show(id): called for the drawing of a row. */
	history: function(reply, show) {
		if (!reply.outcomes.length)
			return E('p', {}, [ _('Nothing has been measured since the router started.') ]);
		return table([ _('Started'), _('Result'), _('Upload'), _('Download'), _('Grade'), '' ], reply.outcomes.map(entry => [
			time(entry.started),
			(OUTCOMES[entry.outcome] || entry.outcome) + (entry.written ? ' ' + _('(written)') : ''),
			rate(entry.upload_kbit),
			rate(entry.download_kbit),
			known(entry.grade_before) + ' → ' + known(entry.grade_after),
			E('button', { 'class': 'btn cbi-button', 'aria-label': _('Show %s').format(entry.id), 'click': () => show(entry.id) }, [ _('Show') ])
		]), _('History'));
	},

	findings: function(reply) {
		if (!reply.findings.length)
			return E('p', {}, [ _('Nothing is wrong with SQM, as far as can be seen.') ]);
		return E('div', {}, reply.findings.map(finding => notice({ error: 'bad', warning: 'warn' }[finding.severity] || 'good', [
			E('strong', {}, [ (SEVERITIES[finding.severity] || finding.severity) + ', ' + finding.where + ': ' ]),
			finding.text, ' ', E('em', {}, [ finding.fix ])
		])));
	},

	advice: function(reply) {
		if (!reply.tunnels.length)
			return E('p', {}, [ _('No WireGuard tunnel is configured here.') ]);
		return E('div', {}, [
			table([ _('Tunnel'), _('MTU now'), _('MTU advised'), _('Advice') ], reply.tunnels.map(tunnel => [
				tunnel.name, known(tunnel.mtu), known(tunnel.advice_mtu), ACTIONS[tunnel.action] || tunnel.action
			]), _('WireGuard')),
			E('ul', {}, reply.tunnels.map(tunnel => E('li', {}, [ E('strong', {}, [ tunnel.name + ': ' ]), tunnel.why ])))
		]);
	}
});
