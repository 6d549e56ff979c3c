'use strict';
'require baseclass';

/* The agent says where everything is; here it only becomes elements. Shapes tell what colours tell. */

const NS = 'http://www.w3.org/2000/svg';

function svg(tag, attributes, children) {
	const node = document.createElementNS(NS, tag);
	for (const name in attributes)
		node.setAttribute(name, attributes[name]);
	for (const child of [].concat(children || []))
		node.appendChild(typeof child === 'string' ? document.createTextNode(child) : child);
	return node;
}

const SHAPES = {
	clean: point => svg('circle', { cx: point.x, cy: point.y, r: 4 }),
	bloated: point => svg('path', { d: 'M%s %sm-4-4l8 8m0-8l-8 8'.replace('%s', point.x).replace('%s', point.y) }),
	inconclusive: point => svg('path', { d: 'M%s %sm-4-4h8v8h-8z'.replace('%s', point.x).replace('%s', point.y) })
};

function mark(point) {
	const shape = (SHAPES[point.kind] || SHAPES.inconclusive)(point);
	return svg('g', { 'class': 'sqma-mark sqma-' + point.kind + (point.last ? ' sqma-last' : '') },
		[ svg('title', {}, point.text), shape ]);
}

function bar(bar, label) {
	return svg('g', { 'class': 'sqma-bar' }, [
		svg('title', {}, bar.text),
		svg('text', { x: 0, y: bar.y, dy: 11, 'class': 'sqma-name' }, label),
		svg('rect', { x: bar.x, y: bar.y, width: bar.width, height: 14, rx: 2 })
	]);
}

return baseclass.extend({
	/* names: what the bars are called in the reader's language. */
	drawing: function(drawing, title, names) {
		if (!drawing)
			return '';
		const width = drawing.width, height = drawing.height, parts = [];
		for (const row of drawing.rows) {
			parts.push(svg('path', { d: 'M34 %sH%s'.replace('%s', row.at).replace('%s', width), 'class': 'sqma-grid' }));
			parts.push(svg('text', { x: 28, y: row.at, dy: 4, 'text-anchor': 'end' }, row.text));
		}
		for (const column of drawing.columns)
			parts.push(svg('text', { x: column.at, y: height, dy: -4, 'text-anchor': 'middle' }, column.text));
		if (drawing.bound != null)
			parts.push(svg('path', { d: 'M34 %sH%s'.replace('%s', drawing.bound).replace('%s', width), 'class': 'sqma-bound' }));
		if (drawing.chosen != null)
			parts.push(svg('path', { d: 'M%s 8V%s'.replace('%s', drawing.chosen).replace('%s', drawing.rows[0].at), 'class': 'sqma-chosen' }));
		if (drawing.curve)
			parts.push(svg('polyline', { points: drawing.curve, 'class': 'sqma-curve' }));
		parts.push.apply(parts, drawing.points.map(mark));
		parts.push.apply(parts, drawing.bars.map(b => bar(b, (names || {})[b.name] || b.name)));
		const picture = svg('svg', {
			viewBox: '0 0 %s %s'.replace('%s', width).replace('%s', height),
			role: 'img',
			'aria-label': drawing.text
		}, parts);
		return E('figure', { 'class': 'sqma-figure' }, [ E('figcaption', {}, [ title ]), picture ]);
	}
});
