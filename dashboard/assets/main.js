// The page: a snapshot a second from the server, shown; nothing is kept beside it.

import {make, say, set, list, table, curve, emptyCurve} from '/assets/nodes.js';
import {count, rate, bytes, age, clock} from '/assets/words.js';
import {ask} from '/assets/answer.js';
import '/assets/letters.js';
import '/assets/fanouts.js';
import '/assets/plan.js';
import {showLimits} from '/assets/limits.js';

const byId = (id) => document.getElementById(id);
const dimensions = ['state', 'lane', 'app', 'type', 'provider', 'reason'];

// The filter is in the address, so that it can be sent to somebody.
const filter = new URLSearchParams();
for (const name of dimensions) {
  const word = new URLSearchParams(location.search).get(name);
  if (word) filter.set(name, word);
}

let source; // undefined while nobody looks
let again;  // the timer of the next try
let heard = 0;

function narrow(name, word) {
  if (word) filter.set(name, word);
  else filter.delete(name);
  history.replaceState(null, '', filter.size ? `/?${filter}` : '/');
  listen();
}

function listen() {
  clearTimeout(again);
  source?.close();
  source = undefined;
  if (document.hidden) return;
  const mine = new EventSource(`/events?${filter}`);
  source = mine;
  mine.onmessage = (event) => {
    heard = Date.now();
    show(JSON.parse(event.data));
  };
  mine.onerror = () => {
    status('lost', 'no answer; trying again');
    if (mine !== source || mine.readyState !== EventSource.CLOSED) return; // it comes back by itself
    again = setTimeout(async () => {
      const reply = await fetch('/snapshot.json').catch(() => undefined);
      if (reply?.status === 401) location.assign('/login');
      else if (mine === source) listen();
    }, 2000);
  };
}

document.addEventListener('visibilitychange', listen);
setInterval(() => {
  if (source && heard && Date.now() - heard > 4000) status('lost', 'no answer; trying again');
}, 1000);

function status(kind, text) {
  const node = byId('status');
  set(node, 'class', kind);
  say(node, text);
}

function show(s) {
  status(s.ready ? 'live' : 'connecting', s.ready ? 'live' : 'reading the last hour');
  showFilter(s);
  showNow(s);
  showRoutes(s);
  showWaits(s);
  showWorkers(s);
  showOutcomes(s);
  showLimits(s, narrow);
  showFailures(s);
  showDoubts(s);
  document.body.dataset.at = s.at;
}

function showFilter(s) {
  const nav = byId('filter');
  nav.hidden = filter.size === 0;
  const words = [...filter].map(([name, word]) => ({name, word}));
  list(nav, words, (w) => w.name + '\u0000' + w.word,
    (w) => make('button', {type: 'button', on: () => narrow(w.name)}),
    (node, w) => {
      const meaning = w.name === 'reason' ? s.meanings[w.word] : '';
      say(node, `${w.name}: ${w.word}${meaning ? ` (${meaning})` : ''} ✕`);
      set(node, 'aria-label', `do not narrow to ${w.name} ${w.word}`);
    });
}

function showNow(s) {
  const numbers = [
    ['sent', 'sent a second', rate(s.sum.sent)],
    ['failed', 'failed a second', rate(s.sum.failed)],
    ['in_progress', 'in progress', count(s.sum.in_progress)],
    ['pushes', 'in flight at providers', count(s.sum.pushes)],
    ['queued', 'queued', count(s.sum.queued)],
    ['waiting', 'wait for a retry', count(s.sum.waiting)],
    ['oldest', 'oldest in progress', age(s.sum.oldest, s.at)],
  ];
  list(byId('numbers'), numbers, (n) => n[0],
    (n) => make('div', {}, make('dt', {text: n[1]}), make('dd', {'data-now': n[0]})),
    (node, n) => say(node.lastChild, n[2]));
  const lane = s.filter.lane ?? '';
  const of = (what) => s.curves.find((c) => c.what === what && (c.lane ?? '') === lane);
  const [good, bad] = [of('sent'), of('failed')];
  const charts = good && bad ? [['quarter', '15 minutes', 5], ['day', '24 hours', 600]] : [];
  list(byId('curves'), charts, (c) => c[0],
    () => make('figure', {}, emptyCurve(), make('figcaption', {}, make('span'), make('span'))),
    (figure, [key, name, step]) => {
      const top = curve(figure.firstChild, [{class: 'sent', points: good[key]}, {class: 'failed', points: bad[key]}]) / step;
      const captions = figure.lastChild.children;
      say(captions[0], `${name} of ${lane || 'all lanes'}: sent (line), failed (dashes)`);
      say(captions[1], `top: ${rate(top)}/s`);
      set(figure.firstChild, 'aria-label', `Sent and failed a second over ${name}: at most ${rate(top)}, last ${rate(good[key].at(-1) / step)} sent and ${rate(bad[key].at(-1) / step)} failed`);
    });
  table(byId('lanes'), [
    {name: 'lane', cell: (l) => l.lane, on: (l) => narrow('lane', l.lane)},
    {name: 'sent/s', n: true, cell: (l) => rate(l.sent)},
    {name: 'failed/s', n: true, cell: (l) => rate(l.failed)},
    {name: 'in progress', n: true, cell: (l) => count(l.in_progress)},
    {name: 'queued', n: true, cell: (l) => count(l.queued)},
    {name: 'waits', n: true, cell: (l) => count(l.waiting)},
    {name: 'oldest', n: true, cell: (l) => age(l.oldest, s.at)},
  ], s.lanes, (l) => l.lane);
}

function showRoutes(s) {
  list(byId('routes'), s.routes, (r) => [r.provider, r.app, r.environment].join('\u0000'),
    () => make('li', {}, make('span', {class: 'lamp'}), make('div'), make('div', {class: 'faint'})),
    (node, r) => {
      const [lamp, name, more] = node.children;
      set(node, 'data-lamp', r.lamp);
      set(node, 'data-route', [r.provider, r.app, r.environment].filter(Boolean).join('/'));
      set(lamp, 'class', `lamp ${r.lamp}`);
      let word = r.lamp;
      if (r.lamp === 'slowed') word = `slowed: ${rate(r.rate)}/s of ${rate(r.base)}`;
      if (r.lamp === 'paused' && r.until) word = `paused until ${clock(r.until)} UTC`;
      say(lamp, word + (r.at < r.workers ? ` (${r.at} of ${r.workers} workers)` : ''));
      say(name, [r.provider, r.app, r.environment].filter(Boolean).join(' / '));
      const facts = [`${rate(r.share)}/s`, `${count(r.in_flight)} in flight`, `${count(r.connections)} connections`, `${count(r.streams)} streams`];
      if (r.word) facts.push(`last word: ${r.word}`);
      if (r.cause) facts.push(`rate: ${r.cause}`);
      for (const a of r.answers) facts.push(`${a.class}${a.reason ? ` ${a.reason}` : ''}: ${count(a.n)}`);
      say(more, facts.join(' · '));
      set(more, 'title', s.meanings[r.word]);
    });
  empty('routes', s.routes, 'no worker has told of a route');
}

// empty says in words that a list has nothing.
function empty(id, items, words) {
  const node = byId(id);
  let note = node.nextElementSibling;
  if (!note?.classList.contains('none')) {
    note = make('p', {class: 'none', text: words});
    node.after(note);
  }
  note.hidden = items.length > 0;
}

function showWaits(s) {
  list(byId('stalls'), s.stalls, (w) => [w.worker, w.reason, w.topic, w.partition, w.route].join('\u0000'),
    () => make('li'),
    (node, w) => {
      const where = [w.lane, w.topic, w.partition === undefined ? '' : `partition ${w.partition}`, w.route].filter(Boolean).join(' · ');
      say(node, `${w.reason}: ${where || 'all'}, for ${age(w.since, s.at)} at ${w.worker}`);
      set(node, 'title', s.meanings[w.reason]);
    });
  empty('stalls', s.stalls, 'nothing stalls');
  table(byId('topics'), [
    {name: 'topic', cell: (t) => t.topic},
    {name: 'kind', cell: (t) => t.kind},
    {name: 'records', n: true, cell: (t) => count(t.waiting)},
  ], s.topics.filter((t) => t.waiting > 0), (t) => t.topic);
}

function showWorkers(s) {
  table(byId('workers'), [
    {name: 'worker', cell: (w) => w.worker, title: (w) => w.release},
    {name: 'partitions', n: true, cell: (w) => count(w.partitions) + (w.of ? ` of ${count(w.of)}` : '')},
    {name: 'sent/s', n: true, cell: (w) => rate(w.sent)},
    {name: 'open', n: true, cell: (w) => count(w.open)},
    {name: 'memory', n: true, cell: (w) => bytes(w.memory) + (w.memory_bound ? ` of ${bytes(w.memory_bound)}` : '')},
    {name: 'a kill repeats', n: true, cell: (w) => `≤ ${count(w.repeat_bound)}`},
    {name: 'up', n: true, cell: (w) => age(w.started, s.at)},
  ], s.workers, (w) => w.worker);
  list(byId('gone'), s.gone, (g) => g.worker + g.heard, () => make('li', {class: 'faint'}),
    (node, g) => {
      set(node, 'data-heard', g.heard);
      say(node, `${g.worker} ${g.last ? 'ended in order' : 'is gone without a word'}, last heard ${age(g.heard, s.at)} ago`);
    });
}

function showOutcomes(s) {
  say(byId('outcomes-total'), `${count(s.outcomes.total)} since ${clock(s.since)} UTC. Click to narrow everything.`);
  list(byId('facets'), dimensions, (name) => name,
    (name) => make('div', {'data-facet': name}, make('h3', {text: name}), make('div')),
    (node, name) => list(node.lastChild, s.outcomes.by[name] ?? [], (share) => share.name,
      (share) => make('button', {type: 'button', class: 'pick', on: () => narrow(name, share.name)}, make('span', {text: share.name}), make('span')),
      (button, share) => {
        say(button.lastChild, count(share.n));
        set(button, 'title', name === 'reason' ? s.meanings[share.name] : '');
        set(button, 'aria-label', `narrow to ${name} ${share.name}: ${count(share.n)}`);
      }));
  const pick = (name) => ({name, cell: (o) => o[name] || '', on: (o) => narrow(name, o[name]), title: (o) => (name === 'reason' ? s.meanings[o.reason] : '')});
  table(byId('outcomes'), [...dimensions.map(pick), {name: 'n', n: true, cell: (o) => count(o.n)}],
    s.outcomes.rows, (o) => dimensions.map((name) => o[name]).join('\u0000'));
}

function showFailures(s) {
  table(byId('failures'), [
    {name: 'time', cell: (f) => clock(f.at)},
    {name: 'id', cell: (f) => f.id, on: (f) => ask({id: f.id})},
    {name: 'state', cell: (f) => f.state},
    {name: 'reason', cell: (f) => f.reason, title: (f) => s.meanings[f.reason]},
    {name: 'app', cell: (f) => f.app},
    {name: 'lane', cell: (f) => f.lane},
  ], s.failures, (f) => [f.id, f.at, f.state].join('\u0000'));
}

function showDoubts(s) {
  list(byId('doubts'), s.approximate, (text) => text.replace(/\d+/g, '#'), () => make('li'), (node, text) => say(node, text));
  list(byId('gaps'), s.gaps, (g) => g.source + g.from, () => make('li', {class: 'faint'}),
    (node, g) => say(node, `${g.source}: ${g.from} to ${g.to}`));
}

byId('find').addEventListener('submit', (event) => {
  event.preventDefault();
  const id = new FormData(event.target).get('id').trim();
  if (id) ask({id});
});
byId('user').addEventListener('submit', (event) => {
  event.preventDefault();
  ask(Object.fromEntries(new FormData(event.target)));
});
const inside = document.cookie.includes('pushfleet_dashboard_in');
byId('logout').hidden = !inside;
byId('login').hidden = inside;

listen();
