'use strict';
'require view';
'require dom';
'require poll';
'require rpc';
'require sqm-autotune.render as render';

function declare(method, params) {
	return rpc.declare({ object: 'sqm-autotune', method: method, params: params || [], reject: true });
}

const agent = {
	status: declare('status'),
	outcome: declare('outcome', [ 'id' ]),
	history: declare('history'),
	findings: declare('findings'),
	advice: declare('advice'),
	start: declare('start'),
	cancel: declare('cancel'),
	apply: declare('apply', [ 'id' ]),
	revert: declare('revert')
};

/* A reply, or why there is none: a page that cannot ask still has something to say. */
function told(promise) {
	return promise.then(
		reply => render.fits(reply) ? { reply: reply } : { failed: render.failure(null) },
		error => ({ failed: render.failure(error || {}) }));
}

function spot(attributes) {
	return E('div', attributes || {});
}

return view.extend({
	load: function() {
		return Promise.all([ told(agent.status()), told(agent.outcome('')) ]);
	},

	render: function(loaded) {
		this.readonly = !L.hasViewPermission();
		this.line = E('p', { 'class': 'cbi-map-descr' });
		this.cost = E('span', {});
		this.calibrate = this.button(_('Calibrate'), 'cbi-button-action important', () => this.act(agent.start()));
		this.cancel = this.button(_('Cancel'), 'cbi-button-negative', () => this.act(agent.cancel()));
		this.write = this.button(_('Apply'), 'cbi-button-positive important', () => this.act(agent.apply(this.outcome.id)));
		this.discard = this.button(_('Discard'), '', () => { this.discarded = this.outcome.id; this.update(); });
		this.undo = this.button(_('Revert'), 'cbi-button-negative', () => this.act(agent.revert()));
		this.notice = spot({ 'role': 'status', 'aria-live': 'polite' });
		this.answer = spot({ 'role': 'alert' });
		this.progress = spot();
		this.result = spot();
		this.changes = spot();
		this.evidence = spot();
		this.interval = 0;
		this.tick = () => told(agent.status()).then(status => this.take(status));

		const page = E('div', { 'class': 'sqma cbi-map' }, [
			render.style(),
			E('h2', {}, [ _('SQM Autotune') ]),
			this.line,
			E('div', { 'class': 'sqma-buttons' }, [ this.calibrate, this.cancel, this.cost ]),
			this.readonly ? E('p', {}, [ _('This login may look at everything and change nothing.') ]) : '',
			this.answer, this.notice, this.progress, this.result, this.changes,
			E('div', { 'class': 'sqma-buttons' }, [ this.write, this.discard, this.undo ]),
			this.evidence,
			this.fold(_('History'), spotted => this.fillHistory(spotted)),
			this.fold(_('Findings'), spotted => this.fill(spotted, agent.findings(), reply => render.findings(reply))),
			this.fold(_('WireGuard'), spotted => this.fill(spotted, agent.advice(), reply => render.advice(reply)))
		]);
		this.show(loaded[1]);
		this.take(loaded[0]);
		return page;
	},

	button: function(text, kind, work) {
		return E('button', { 'type': 'button', 'class': 'btn cbi-button ' + kind, 'click': work, 'disabled': this.readonly || null }, [ text ]);
	},

	/* A part that is asked for when it is opened. */
	fold: function(title, fill) {
		const content = spot();
		const fold = E('details', {}, [ E('summary', {}, [ title ]), content ]);
		fold.addEventListener('toggle', () => fold.open && fill(content));
		return fold;
	},

	fill: function(content, promise, draw) {
		return told(promise).then(answer => {
			const wrong = answer.reply && answer.reply.error;
			dom.content(content, answer.failed || (wrong ? render.refusal(wrong) : draw(answer.reply)));
		});
	},

	fillHistory: function(content) {
		const shown = spot({ 'aria-live': 'polite' });
		const show = id => this.fill(shown, agent.outcome(id), reply => E('div', {}, [ render.summary(reply.outcome), render.evidence(reply.outcome) ]));
		return this.fill(content, agent.history(), reply => E('div', {}, [ render.history(reply, show), shown ]));
	},

	/* Does something and looks at once what comes of it. */
	act: function(promise) {
		return told(promise).then(answer => {
			const wrong = answer.reply && answer.reply.error;
			return this.tick().then(() => {
				/* Who gets no status either has been told why. */
				dom.content(this.answer, wrong ? render.refusal(wrong) : answer.failed && this.status ? answer.failed : '');
			});
		});
	},

	/* A status has come, or none. */
	take: function(status) {
		const failed = !status.reply;
		const before = this.status;
		if (failed) {
			dom.content(this.notice, status.failed);
			dom.content(this.progress, '');
			this.status = null;
			this.key = null;
			this.update();
			return this.ask(5);
		}
		this.status = status.reply;
		const running = this.status.state === 'running';
		const key = [ this.status.state, this.status.job && this.status.job.began, this.status.job && this.status.job.end && this.status.job.end.exit ].join();
		if (key !== this.key) {
			this.key = key;
			dom.content(this.notice, render.ending(this.status));
			/* What was answered is about what was going on then. */
			dom.content(this.answer, '');
			/* What ends after the page was loaded has changed what it shows. */
			if (before !== undefined && !running)
				told(agent.outcome('')).then(answer => this.show(answer));
		}
		dom.content(this.progress, render.progress(this.status));
		this.update();
		return this.ask(this.status.poll_s);
	},

	/* An outcome has come, or none. */
	show: function(answer) {
		if (!answer.reply || answer.reply.error)
			return;
		const reply = answer.reply;
		this.outcome = reply.outcome;
		this.revertible = reply.revert;
		dom.content(this.line, render.line(reply));
		/* In a list: a bare string would be taken for HTML. */
		dom.content(this.cost, [ reply.cost ]);
		dom.content(this.result, reply.problems.map(problem => E('p', { 'class': 'sqma-notice sqma-bad' }, [ problem ])).concat(render.summary(reply.outcome)));
		dom.content(this.evidence, render.evidence(reply.outcome));
		this.update();
	},

	/* Which buttons there are now. A button in use keeps its focus, so none is made anew. */
	update: function() {
		const running = this.status && this.status.state === 'running';
		const open = this.outcome && this.outcome.changes && this.outcome.id !== this.discarded;
		const focused = document.activeElement;
		const visible = (node, is) => { node.hidden = !is; };
		visible(this.calibrate, !running);
		visible(this.cost, !running);
		visible(this.cancel, running);
		visible(this.result, !running);
		visible(this.changes, !running);
		visible(this.evidence, !running);
		visible(this.write, open && !running);
		visible(this.discard, open && !running);
		visible(this.undo, this.revertible && !running);
		this.calibrate.disabled = this.readonly || !this.status;
		/* Whoever works with the keyboard stays where they are. */
		if (focused && focused.hidden)
			(running ? this.cancel : this.calibrate).focus();
		dom.content(this.changes, open || (this.outcome && !this.outcome.changes) ? render.changes(this.outcome) : '');
	},

	ask: function(seconds) {
		if (this.interval === seconds)
			return;
		this.interval = seconds;
		poll.remove(this.tick);
		poll.add(this.tick, seconds);
	},

	handleSave: null,
	handleSaveApply: null,
	handleReset: null
});
