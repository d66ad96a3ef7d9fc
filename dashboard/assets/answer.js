// Why a notification did or did not arrive, in the words of pushctl.

import {make} from '/assets/nodes.js';
import {fetched} from '/assets/request.js';

const section = document.getElementById('answer');
const body = document.getElementById('answer-body');

let latest = 0; // only the answer to the last question is shown

export async function ask(question) {
  const mine = ++latest;
  section.hidden = false;
  body.replaceChildren(make('p', {class: 'faint', text: 'asking …'}));
  body.focus();
  const told = await fetched('/lookup', question);
  if (mine !== latest) return;
  if (told.error) body.replaceChildren(make('p', {class: 'bad', text: told.error}));
  else body.replaceChildren(...(told.steps ? ofUser(told) : ofNotification(told)));
}

function ofNotification(n) {
  const parts = [
    make('p', {}, make('strong', {'data-outcome': n.outcome, text: n.outcome}), `: ${n.meaning}`),
    make('p', {class: 'faint', text: `notification ${n.id}`}),
  ];
  for (const d of n.devices) {
    const name = d.device ? `device ${d.device}` : 'the whole notification';
    parts.push(make('p', {text: `${name}${d.provider ? ` (${d.provider})` : ''}: ${d.state}: ${d.meaning}`}));
  }
  if (n.states.length) {
    const rows = n.states.map((s) => make('tr', {},
      ...[s.at, String(s.step), s.state, s.device, s.provider, s.reason, s.meaning].map((text) => make('td', {text: text || '–'}))));
    const head = make('tr', {}, ...['time', 'step', 'state', 'device', 'provider', 'reason', 'meaning'].map((text) => make('th', {scope: 'col', text})));
    parts.push(make('div', {class: 'wide'}, make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows))));
  }
  return parts;
}

function ofUser(answers) {
  const steps = answers.steps.map((s) => make('li', {class: s.bad ? 'bad' : ''},
    make('strong', {text: `${s.step}: `}), s.says + (s.at ? ` (${s.at})` : '')));
  const parts = [make('p', {class: 'faint', text: `user ${answers.user}`}), make('ul', {'data-steps': ''}, ...steps)];
  if (answers.notification) parts.push(...ofNotification(answers.notification));
  return parts;
}

document.getElementById('answer-close').addEventListener('click', () => {
  latest++;
  section.hidden = true;
});
