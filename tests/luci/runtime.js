/* A small stand-in for what LuCI gives a view: only what our page uses, and as strict. Where the real one behaves in a
   surprising way, so does this: a bare string is HTML, `disabled: false` disables, a failed call resolves without `reject`,
   an error has its code in its text only, a page that starts to poll polls at once, the last poll that goes stops the clock
   and the next one starts it again, an expired session stops it for good. */
'use strict';

String.prototype.format = function() {
	let n = 0;
	const args = arguments;
	return this.replace(/%[sd%]/g, found => found === '%%' ? '%' : String(args[n++]));
};

const words = {};

function _(text) {
	return words[text] || text;
}

const dom = {
	append: function(node, children) {
		if (Array.isArray(children)) {
			for (const child of children) {
				if (child instanceof Node)
					node.appendChild(child);
				else if (child != null)
					node.appendChild(document.createTextNode('' + child));
			}
		}
		else if (children instanceof Node)
			node.appendChild(children);
		else if (children != null)
			node.innerHTML = '' + children;
	},
	content: function(node, children) {
		while (node.firstChild)
			node.removeChild(node.firstChild);
		dom.append(node, children);
	}
};

function E(tag, attributes, children) {
	const node = document.createElement(tag);
	for (const name in attributes) {
		if (attributes[name] == null)
			continue;
		if (typeof attributes[name] === 'function')
			node.addEventListener(name, attributes[name]);
		else
			node.setAttribute(name, attributes[name]);
	}
	dom.append(node, children);
	return node;
}

/* Seconds count as they do in LuCI; `?hurry=N` makes them shorter. */
const hurry = Number(new URLSearchParams(location.search).get('hurry') || 1);

const poll = {
	queue: [],
	/* Not a number: nothing has started yet, or all is stopped. */
	tick: null,
	timer: null,
	add: function(work, seconds) {
		if (!(seconds > 0) || poll.queue.some(entry => entry.work === work))
			return false;
		poll.queue.push({ work: work, seconds: seconds, ready: true });
		if (poll.tick != null && poll.timer == null)
			poll.start();
		return true;
	},
	remove: function(work) {
		const before = poll.queue.length;
		poll.queue = poll.queue.filter(entry => entry.work !== work);
		if (!poll.queue.length && poll.stop())
			poll.tick = 0;
		return poll.queue.length < before;
	},
	start: function() {
		poll.tick = 0;
		if (poll.queue.length) {
			poll.timer = setInterval(poll.step, 1000 / hurry);
			poll.step();
		}
	},
	stop: function() {
		if (poll.timer == null)
			return false;
		clearInterval(poll.timer);
		poll.timer = null;
		poll.tick = null;
		return true;
	},
	step: function() {
		for (const entry of poll.queue) {
			if (poll.tick % entry.seconds || !entry.ready)
				continue;
			entry.ready = false;
			/* One that never settles is never called again. */
			Promise.resolve(entry.work()).catch(() => {}).then(() => { entry.ready = true; });
		}
		poll.tick++;
	}
};

const rpc = {
	asked: [],
	declare: function(options) {
		return function() {
			const question = {};
			(options.params || []).forEach((name, n) => {
				if (arguments[n] !== undefined)
					question[name] = arguments[n];
			});
			rpc.asked.push(options.method);
			return fetch('/ubus' + location.search, {
				method: 'POST',
				body: JSON.stringify({ object: options.object, method: options.method, question: question })
			}).then(response => {
				if (!response.ok)
					throw new Error('HTTP ' + response.status);
				return response.json();
			}).then(answer => {
				if (answer.error === undefined)
					return answer.result;
				if (!options.reject)
					return answer.error;
				if (answer.expired)
					poll.stop();
				const error = new Error(answer.expired ? 'Login session is expired' :
					'RPC call to %s/%s failed with %s'.format(options.object, options.method, answer.error));
				error.name = answer.expired ? 'SessionError' : 'RPCError';
				throw error;
			});
		};
	}
};

const Base = {
	extend: function(members) {
		function Made() {}
		Made.prototype = Object.assign(Object.create(this.prototype || {}), members);
		Made.prototype.__made = true;
		return Made;
	}
};

/* As much of a form as shows which options there are, with their names. */
const kinds = [ 'Flag', 'Value', 'ListValue', 'DynamicList', 'TypedSection' ];
const form = { Map: function(config, title, about) { Object.assign(this, { config, title, about, sections: [] }); } };
kinds.forEach(kind => { form[kind] = kind; });
form.Map.prototype.section = function(kind, type, title) {
	const section = { type: type, title: title, options: [] };
	section.option = (kind, name, title, about) => {
		const option = { kind: kind, name: name, title: title, about: about, values: [], value: (value, text) => option.values.push([ value, text || value ]) };
		section.options.push(option);
		return option;
	};
	this.sections.push(section);
	return section;
};
/* What it thinks of a value: the types that we use, and our own judges. Everything may be left empty. */
const whole = value => /^-?\d+$/.test(value) ? Number(value) : NaN;
const decimal = value => /^[+-]?\d+(\.\d+)?$/.test(value) ? Number(value) : NaN;
const types = {
	uinteger: value => whole(value) >= 0,
	ufloat: value => decimal(value) >= 0,
	range: (value, low, high) => decimal(value) >= low && decimal(value) <= high,
	min: (value, low) => decimal(value) >= low,
	max: (value, high) => decimal(value) <= high,
	ipaddr: value => /^[0-9.]+$/.test(value) ? value.split('.').length === 4 && value.split('.').every(part => part !== '' && part <= 255) : /^[0-9a-f]*:[0-9a-f:]*$/.test(value)
};
function is(type, value) {
	const [ , name, rest ] = /^(\w+)(?:\((.*)\))?$/.exec(type);
	if (name === 'and')
		return rest.match(/\w+(\([^()]*\))?/g).every(part => is(part, value));
	return types[name](value, ...(rest || '').split(',').map(Number));
}
function verdict(option, value) {
	if (value === '')
		return true;
	if (option.values.length && !option.values.some(entry => entry[0] === value))
		return 'not in the list';
	if (option.datatype && !is(option.datatype, value))
		return 'not ' + option.datatype;
	return option.validate ? option.validate('section', value) : true;
}

form.Map.prototype.render = function() {
	const field = (section, option) => {
		const input = E('input', { 'name': section.type + '.' + option.name });
		input.addEventListener('input', () => {
			const good = verdict(option, input.value);
			input.setAttribute('aria-invalid', good !== true);
			input.title = good === true ? '' : good;
		});
		return E('p', {}, [ E('label', {}, [ option.title + ' ', input ]) ]);
	};
	const sections = this.sections.map(section => E('fieldset', {}, [ E('legend', {}, [ section.title ]) ].concat(section.options.map(option => field(section, option)))));
	return Promise.resolve(E('div', {}, [ E('h2', {}, [ this.title ]) ].concat(sections)));
};

const modules = { baseclass: Base, view: Base, dom: dom, poll: poll, rpc: rpc, form: form };

/* Only strings at the top of a file are directives. */
async function load(name) {
	if (modules[name])
		return modules[name];
	const response = await fetch('/resources/' + name.replace(/\./g, '/') + '.js');
	const source = await response.text();
	const names = [], values = [];
	for (const line of source.split('\n')) {
		const found = line.match(/^'require ([a-z.-]+)(?: as ([a-zA-Z_]+))?';$/);
		if (found) {
			values.push(await load(found[1]));
			names.push(found[2] || found[1].replace(/[^a-zA-Z]/g, '_'));
		}
		else if (line.trim() && line !== "'use strict';" && !line.startsWith('/*'))
			break;
	}
	const made = new Function(...names, '_', 'E', 'L', source + '\n//# sourceURL=' + name + '.js')(...values, _, E, L);
	if (!made || !made.prototype || !made.prototype.__made)
		throw new Error(name + ' returned no class');
	return (modules[name] = new made());
}

const L = {
	hasViewPermission: () => new URLSearchParams(location.search).get('login') !== 'reader'
};

window.shown = (async () => {
	const search = new URLSearchParams(location.search);
	Object.assign(words, await (await fetch('/words/' + (search.get('words') || 'none'))).json());
	const place = document.getElementById('view');
	const page = await load('view.sqm-autotune.' + (search.get('page') || 'line'));
	const loaded = page.load ? await page.load() : undefined;
	dom.content(place, await page.render(loaded));
	const first = rpc.asked.slice();
	poll.start();
	return first;
})();
