// What builds the page. Text is only ever set by textContent: names come from producers
// and providers, and may be anything.

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'text') node.textContent = value;
    else if (name === 'on') node.addEventListener('click', value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// say sets a text if it is another one, so that nothing is laid out anew without need.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function set(node, name, value) {
  if (value === undefined || value === '') node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// list shows items as children of a node, one each. A child stays the same node as long
// as its key is there, so that it keeps the focus and what is selected in it.
export function list(parent, items, keyOf, create, update) {
  const old = parent.children_ ?? new Map();
  const now = new Map();
  for (const item of items) {
    let key = keyOf(item);
    while (now.has(key)) key += '\u0000';
    const child = old.get(key) ?? create(item);
    update(child, item);
    now.set(key, child);
    old.delete(key);
  }
  for (const child of old.values()) child.remove(); // before others are placed: who stays need not move
  let next = parent.firstElementChild;
  for (const child of now.values()) {
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  parent.children_ = now;
}

// table shows rows, on a phone each in lines of its own if the table is of the class rows; columns are {name, n: numeric, cell: row => text, button: {text, on, title}, or undefined}.
export function table(node, columns, rows, keyOf) {
  if (!node.body_) { // with roles, as some browsers forget those of tables that are laid out otherwise
    const head = make('tr', {role: 'row'});
    for (const c of columns) head.append(make('th', {scope: 'col', role: 'columnheader', class: c.n ? 'n' : '', text: c.name}));
    node.body_ = make('tbody', {role: 'rowgroup'});
    node.append(make('thead', {role: 'rowgroup'}, head), node.body_);
    node.setAttribute('role', 'table');
  }
  node.hidden = rows.length === 0; // a head without rows says nothing
  list(node.body_, rows, keyOf, () => {
    const row = make('tr', {role: 'row'});
    for (const c of columns) {
      const cell = make('td', {role: 'cell', class: c.n ? 'n' : '', 'data-name': c.name}); // for where no head is shown
      if (c.on) cell.append(make('button', {type: 'button', class: 'id', on: () => c.on(row.item_)}));
      row.append(cell);
    }
    return row;
  }, (row, item) => {
    row.item_ = item;
    columns.forEach((c, i) => {
      const cell = row.children[i];
      const target = c.on ? cell.firstElementChild : cell;
      say(target, String(c.cell(item) ?? ''));
      if (c.title) set(cell, 'title', c.title(item));
      if (c.mark) set(cell, 'data-lamp', c.mark(item));
    });
  });
}

const svgNames = 'http://www.w3.org/2000/svg';

// curve draws series of points, {class, points}, into an svg over the width of 100. Its top
// is the greatest point, and at least least.
export function curve(svg, series, least = 1) {
  const top = Math.max(least, ...series.flatMap((s) => s.points));
  for (const s of series) {
    let path = svg.querySelector(`path.${s.class}`);
    if (!path) {
      path = document.createElementNS(svgNames, 'path');
      path.setAttribute('class', s.class);
      svg.append(path);
    }
    const step = 100 / Math.max(1, s.points.length - 1);
    path.setAttribute('d', s.points.map((n, i) => `${i ? 'L' : 'M'}${(i * step).toFixed(2)} ${(39 - 38 * n / top).toFixed(2)}`).join(''));
  }
  return top;
}

export function emptyCurve() {
  const svg = document.createElementNS(svgNames, 'svg');
  svg.setAttribute('class', 'curve');
  svg.setAttribute('viewBox', '0 0 100 40');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  return svg;
}
