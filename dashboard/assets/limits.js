// What limits stop, and how near that is to the alert.

import {make, say, set, list, table, curve, emptyCurve} from '/assets/nodes.js';
import {count, percent, span} from '/assets/words.js';

const byId = (id) => document.getElementById(id);

const about = (users) => (users ? `about ${count(users)}` : '');

export function showLimits(s, narrow) {
  const l = s.limits;
  say(byId('limits-says'), `${percent(l.share)} of what was counted in the last 10 minutes is over a limit; PushManyLimited fires above ${percent(l.line)}. Notifications and devices; how many users that were is estimated, to about 3 %.`);
  set(byId('limits-says'), 'class', l.share > l.line ? 'bad' : '');
  list(byId('limits-curve'), [l], () => '', () => make('figure', {}, emptyCurve(), make('figcaption', {}, make('span', {text: 'an hour: over a limit (line), the alert (dashes)'}), make('span'))),
    (figure) => {
      const top = curve(figure.firstChild, [{class: 'sent', points: l.minutes}, {class: 'failed', points: l.minutes.map(() => l.line)}], l.line * 1.2);
      say(figure.lastChild.lastChild, `top: ${percent(top)}`);
      set(figure.firstChild, 'aria-label', `Share that is over a limit, by minute: at most ${percent(Math.max(...l.minutes))}, last ${percent(l.minutes.at(-1))}`);
    });
  table(byId('limits-rules'), [
    {name: 'rule', cell: (r) => r.rule, on: (r) => narrow('reason', r.reason)},
    {name: 'stopped', n: true, cell: (r) => count(r.stopped)},
    {name: 'put off', n: true, cell: (r) => count(r.put_off)},
    {name: 'users, 5 min', n: true, cell: (r) => about(r.users_5m)},
    {name: 'users, an hour', n: true, cell: (r) => about(r.users_1h)},
  ], l.rules, (r) => r.reason);
  showSenders(l.senders);
}

const full = 100; // percent

function showSenders(senders) {
  byId('senders-section').hidden = senders.length === 0;
  list(byId('senders'), senders, (one) => `${one.sender}\u0000${one.rule}`,
    () => make('li', {}, make('h4'), make('div'), make('figure', {}, emptyCurve()), make('div', {class: 'faint'})),
    (node, one) => {
      const [name, share, figure, more] = node.children;
      say(name, one.sender);
      say(share, `${percent(one.share)} of its limit${one.wait > 0 ? `: another one waits ${span(one.wait)}` : ''}`);
      set(share, 'class', one.wait > 0 ? 'bad' : '');
      curve(figure.firstChild, [{class: 'sent', points: one.minutes}, {class: 'failed', points: one.minutes.map(() => full)}], full * 1.2);
      set(figure.firstChild, 'aria-label', `Greatest share of the limit by minute, over an hour: at most ${count(Math.max(...one.minutes))} %, last ${count(one.minutes.at(-1))} %`);
      say(more, `${one.rule}: ${count(one.limit)} in ${span(one.window)} · limited ${one.limited === 1 ? 'once' : `${count(one.limited)} times`} in the last hour`);
    });
}
