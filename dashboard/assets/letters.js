// Dead letters: the list, and what is done with them. Nothing is done that a dry run has
// not counted, and that was not typed.

import {make, say, table} from '/assets/nodes.js';
import {count, moment} from '/assets/words.js';
import {ask} from '/assets/answer.js';
import {send, fetched} from '/assets/request.js';

const byId = (id) => document.getElementById(id);
const form = byId('letters'), plan = byId('letters-plan');
let latest = 0;  // only the answer to the last question is shown
let planned;     // what a dry run was asked, and its answer; undefined = nothing is to be confirmed

const words = () => Object.fromEntries([...new FormData(form)].map(([name, word]) => [name, word.trim()]));

async function list() {
  const mine = ++latest;
  forget();
  say(byId('letters-says'), 'reading …');
  const told = await fetched('/letters', words());
  if (mine !== latest) return;
  const letters = told.letters ?? [];
  table(byId('letters-table'), [
    {name: 'time', cell: (l) => moment(l.time)},
    {name: 'id', cell: (l) => l.id || l.place, on: (l) => l.id && ask({id: l.id})},
    {name: 'reason', cell: (l) => l.reason},
    {name: 'detail', cell: (l) => l.problem || l.detail},
    {name: 'app', cell: (l) => l.app},
    {name: 'provider', cell: (l) => l.providers.join(', ')},
    {name: 'tries', n: true, cell: (l) => count(l.attempts)},
    {name: 'redrives', n: true, cell: (l) => count(l.redrives)},
    {name: 'expired', cell: (l) => (l.expired ? 'yes' : '')},
  ], letters.toReversed(), (l) => l.place);
  byId('letters-act').hidden = letters.length === 0;
  say(byId('letters-says'), told.error ?? `${count(letters.length)} open${told.older ? `, and ${count(told.older)} older ones` : ''}. ${rights[told.acts]}`);
}

const rights = {
  you: 'You may redrive and dismiss.',
  admin: 'To redrive or dismiss, log in with the admin key.',
  nobody: 'Who starts the dashboard with --admin-key-file may let people redrive and dismiss here.',
};

function forget() {
  planned = undefined;
  plan.hidden = true;
  plan.reset();
}

// dryRun shows what an act would do, and what to type for it.
async function dryRun(act) {
  const mine = ++latest, asked = {act, ...words()};
  forget();
  say(byId('letters-says'), 'counting …');
  const told = await send('/letters', asked);
  if (mine !== latest) return;
  if (Object.entries(words()).some(([name, word]) => word !== asked[name])) { // they were changed meanwhile
    say(byId('letters-says'), 'Other words than were counted stand there now: count again.');
    return;
  }
  say(byId('letters-says'), told.error ?? result(told));
  if (told.error || told.n === 0) return;
  planned = {...asked, until: told.until, seen: told.seen, confirm: told.confirm};
  say(byId('letters-words'), told.confirm);
  plan.hidden = false;
  plan.elements.by.focus();
}

function result(told) {
  const done = told.act === 'redrive' ? 'redriven' : 'dismissed';
  const parts = [told.error ?? (told.dry_run ? `A dry run: ${count(told.n)} would be ${done}` : `${count(told.n)} were ${done}`)];
  if (told.more) parts.push('there may be more: repeat it, or use pushctl');
  for (const [why, n] of Object.entries(told.skipped ?? {})) parts.push(`${count(n)} left out: ${why.replaceAll('_', ' ')}`);
  if (!told.dry_run && told.delay_seconds) parts.push(`workers read them after ${count(told.delay_seconds)} s`);
  return `${parts.join('; ')}.`;
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  list();
});
form.addEventListener('input', forget); // what was counted is of other words
byId('letters-redrive').addEventListener('click', () => dryRun('redrive'));
byId('letters-dismiss').addEventListener('click', () => dryRun('dismiss'));
byId('letters-not').addEventListener('click', forget);
plan.addEventListener('submit', async (event) => {
  event.preventDefault();
  if (!planned) return;
  const typed = new FormData(plan), asked = {...planned, do: true, by: typed.get('by').trim(), confirm: typed.get('confirm').trim()};
  if (asked.confirm !== planned.confirm) {
    say(byId('letters-says'), `Nothing was done: type ${planned.confirm}`);
    return;
  }
  const mine = ++latest;
  forget();
  say(byId('letters-says'), 'at work …');
  const told = await send('/letters', asked);
  if (mine !== latest) return;
  if (!told.error) await list();
  say(byId('letters-says'), told.n === undefined ? told.error : result(told));
});
