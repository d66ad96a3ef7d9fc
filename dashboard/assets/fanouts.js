// Messages for many receivers: how far they are, and orders about them.

import {say, set, table} from '/assets/nodes.js';
import {count, moment} from '/assets/words.js';
import {send, fetched} from '/assets/request.js';

const byId = (id) => document.getElementById(id);
const form = byId('fanouts'), plan = byId('fanouts-plan');
let latest = 0; // only the answer to the last question is shown
let planned;    // the order that is to be confirmed
let shown = false, timer;

async function list() {
  const mine = ++latest;
  clearTimeout(timer);
  const told = await fetched('/fanouts', {id: new FormData(form).get('id').trim()});
  if (mine !== latest) return;
  shown = !told.error;
  const fanouts = told.fanouts ?? [];
  const may = (f, order) => told.acts === 'you' && f.orders.includes(order);
  table(byId('fanouts-table'), [
    {name: 'accepted', cell: (f) => moment(f.accepted)},
    {name: 'topic', cell: (f) => f.topic, title: (f) => f.id},
    {name: 'campaign', cell: (f) => f.campaign ?? ''},
    {name: 'app', cell: (f) => f.app},
    {name: 'sender', cell: (f) => f.sender},
    {name: 'state', cell: (f) => f.state},
    {name: 'chunks', n: true, cell: (f) => `${count(f.ended)} of ${count(f.parts)}`},
    {name: 'receivers', n: true, cell: (f) => count(f.emitted)},
    {name: 'skipped', n: true, cell: (f) => count(Object.values(f.skipped).reduce((sum, n) => sum + n, 0)), title: (f) => Object.entries(f.skipped).map(([why, n]) => `${why}: ${count(n)}`).join(', ')},
    {name: 'pause', cell: (f) => (f.pause = ['pause', 'resume'].find((order) => may(f, order)) ?? ''), on: (f) => f.pause && ask(f, f.pause)},
    {name: 'cancel', cell: (f) => (may(f, 'cancel') ? 'cancel' : ''), on: (f) => may(f, 'cancel') && ask(f, 'cancel')},
  ], fanouts, (f) => f.id);
  say(byId('fanouts-says'), told.error ?? (fanouts.length ? rights[told.acts] : 'None of the last day.'));
  if (shown && fanouts.length) timer = setTimeout(() => !document.hidden && list(), 5000);
}

const rights = {
  you: 'You may pause, resume and cancel.',
  admin: 'To pause, resume or cancel, log in with the admin key.',
  nobody: 'Who starts the dashboard with --admin-key-file may let people pause, resume and cancel here.',
};

function forget() {
  planned = undefined;
  plan.hidden = true;
  plan.reset();
}

function ask(fanout, order) {
  forget();
  planned = {id: fanout.id, order, confirm: `${order} ${fanout.id.slice(-6)}`};
  say(byId('fanouts-words'), planned.confirm);
  say(byId('fanouts-warns'), order === 'cancel' ? 'Cancelling cannot be undone: receivers who have no notification by then get none. ' : '');
  plan.hidden = false;
  plan.elements.by.focus();
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  forget();
  list();
});
byId('fanouts-not').addEventListener('click', forget);
document.addEventListener('visibilitychange', () => !document.hidden && shown && list());
plan.addEventListener('submit', async (event) => {
  event.preventDefault();
  if (!planned) return;
  const typed = new FormData(plan), order = {...planned, by: typed.get('by').trim(), confirm: typed.get('confirm').trim()};
  if (order.confirm !== planned.confirm) {
    say(byId('fanouts-says'), `Nothing was done: type ${planned.confirm}`);
    return;
  }
  forget();
  const told = await send('/fanouts', order);
  if (!told.error) await list();
  say(byId('fanouts-says'), told.error ?? `Noted: ${told.order} ${told.id}. Chunks that are under way end first.`);
  set(byId('fanouts-says'), 'class', told.error ? 'bad' : '');
});
