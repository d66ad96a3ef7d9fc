// What a load needs. The server reckons, as pushctl plan does; the page has the sliders.

import {make, say, set, list, table} from '/assets/nodes.js';
import {fetched} from '/assets/request.js';

const byId = (id) => document.getElementById(id);
const moved = {}; // numbers by the name of their slider
let latest = 0, timer;

// A slider has as many steps as there are whole numbers, so that an arrow key is one.
const stepsOf = (s) => (s.whole ? s.to - s.from : 1000);

const place = (s, value) => Math.round(stepsOf(s) * (s.powers ? Math.log(value / s.from) / Math.log(s.to / s.from) : (value - s.from) / (s.to - s.from)));

function value(s, at) {
  const part = at / stepsOf(s), x = s.powers ? s.from * (s.to / s.from) ** part : s.from + (s.to - s.from) * part;
  return s.whole ? Math.round(x) : Number(x.toPrecision(2));
}

async function reckon() {
  const mine = ++latest;
  const told = await fetched('/plan', moved);
  if (mine !== latest) return;
  set(byId('plan-says'), 'class', told.error ? 'bad' : '');
  say(byId('plan-says'), told.error ?? told.verdict);
  if (told.error) return;
  list(byId('plan'), told.sliders, (s) => s.name, (s) => {
    const range = make('input', {type: 'range', min: 0, max: stepsOf(s), name: s.name});
    range.value = place(s, s.value);
    range.addEventListener('input', () => {
      moved[s.name] = value(s, range.valueAsNumber);
      clearTimeout(timer);
      timer = setTimeout(reckon, 100);
    });
    return make('label', {}, make('span', {}, make('span', {text: s.name}), make('b')), range);
  }, (node, s) => {
    const shown = s.value === 0 && s.whole ? 'as many as needed' : s.shown;
    say(node.firstChild.lastChild, shown);
    set(node.lastChild, 'aria-valuetext', shown);
    set(node, 'title', s.source ? `${s.text} (${s.source})` : s.text);
  });
  list(byId('plan-short'), told.short, (text) => text, (text) => make('li', {class: 'bad', text}), () => {});
  table(byId('plan-lines'), [
    {name: 'part', cell: (l) => l.part},
    {name: 'what', cell: (l) => l.what},
    {name: 'is', cell: (l) => l.is},
    {name: 'because', cell: (l) => l.how},
  ], told.lines, (l) => `${l.part} ${l.what}`);
}

byId('plan-section').addEventListener('toggle', reckon, {once: true}); // nothing is asked for until it is opened
