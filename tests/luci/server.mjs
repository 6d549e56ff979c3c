// Serves the view with the stand-in for LuCI's runtime, and asks the real agent, as rpcd does: a process for each question.
// What is wrong with the router is in the page's address: ?login=reader|none, ?agent=missing|broken|other|dead.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { spawn } from 'node:child_process';
import { join, normalize } from 'node:path';
import { messages } from './words.mjs';

const here = import.meta.dirname;
const app = join(here, '../../luci-app');
const DENIED = 'error -32002: Access denied';
const READING = ['status', 'outcome', 'history', 'findings', 'advice'];
const PAGE = theme => `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Router</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<link rel="icon" href="data:,"><style>
li,.cbi-map-descr{color:#808080} body{margin:0;padding:0 12px;font:14px/1.5 sans-serif;background:${theme === 'dark' ? '#222' : '#fff'};color:${theme === 'dark' ? '#ddd' : '#222'}}
button{font:inherit;padding:.3em .9em;border:1px solid currentColor;border-radius:4px;background:transparent;color:inherit}
.important{font-weight:bold} button[disabled]{opacity:.6}
</style></head><body><main id="view">Loading view…</main><script src="/runtime.js"></script></body></html>`;

function ask(agent, line, root, method, question) {
  return new Promise((answered, failed) => {
    const child = spawn(agent, ['rpcd', 'call', method, '--root', root, ...line], { stdio: ['pipe', 'pipe', 'inherit'] });
    let text = '';
    child.stdout.on('data', data => { text += data; });
    child.on('error', failed);
    child.on('close', () => answered(text));
    child.stdin.end(JSON.stringify(question));
  });
}

export async function serve({ agent, root, line }) {
  const router = { root, line, agent: 'there', login: 'owner', asked: [] };
  router.ask = async (method, question = {}) => JSON.parse(await ask(agent, router.line, root, method, question));
  const reply = async body => {
    const { object, method, question } = JSON.parse(body);
    router.asked.push(method);
    if (router.login === 'none') return { error: DENIED, expired: true };
    if (router.agent === 'missing') return { error: 'error -32000: Object not found' };
    if (router.agent === 'broken') return { error: 'ubus code 9: Unknown error' };
    if (object !== 'sqm-autotune' || (router.login === 'reader' && !READING.includes(method))) return { error: DENIED };
    const answer = await router.ask(method, question);
    return { result: router.agent === 'other' ? { ...answer, format: 2 } : router.altered ? router.altered(method, answer) : answer };
  };
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, 'http://router');
    const send = (type, body, status = 200) => {
      response.writeHead(status, { 'Content-Type': type, 'Cache-Control': 'no-store' });
      response.end(body);
    };
    try {
      if (url.pathname === '/') return send('text/html', PAGE(url.searchParams.get('theme')));
      if (url.pathname === '/runtime.js') return send('text/javascript', await readFile(join(here, 'runtime.js')));
      if (url.pathname.startsWith('/words/')) return send('application/json', JSON.stringify(await messages(url.pathname.slice(7))));
      if (url.pathname.startsWith('/resources/')) {
        const path = normalize(url.pathname.slice('/resources/'.length));
        return send('text/javascript', await readFile(join(app, 'htdocs/luci-static/resources', path)));
      }
      if (url.pathname === '/ubus') {
        if (router.agent === 'dead') return request.socket.destroy();
        let body = '';
        for await (const data of request) body += data;
        return send('application/json', JSON.stringify(await reply(body)));
      }
      send('text/plain', 'no such page', 404);
    } catch (error) {
      send('text/plain', String(error), 500);
    }
  });
  await new Promise(ready => server.listen(0, '127.0.0.1', ready));
  router.address = `http://127.0.0.1:${server.address().port}/`;
  router.close = () => { server.closeAllConnections(); return new Promise(closed => server.close(closed)); };
  return router;
}
