// Numbers and times as people read them.

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const tenth = new Intl.NumberFormat('en', {maximumFractionDigits: 1});

export const count = (n) => whole.format(n);
export const rate = (n) => (n < 100 ? tenth : whole).format(n);

export function bytes(n) {
  for (const unit of ['B', 'KiB', 'MiB']) {
    if (n < 1024) return `${tenth.format(n)} ${unit}`;
    n /= 1024;
  }
  return `${tenth.format(n)} GiB`;
}

// age is the time from then to now, both as the server says.
export function age(then, now) {
  if (!then) return '–';
  const s = Math.max(0, Math.round((Date.parse(now) - Date.parse(then)) / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

// span is a length of time in seconds, as in "10 in a minute".
export function span(s) {
  const [n, unit] = s < 60 ? [s, 'second'] : s < 3600 ? [s / 60, 'minute'] : s < 86400 ? [s / 3600, 'hour'] : [s / 86400, 'day'];
  if (Math.round(10 * n) === 10) return unit === 'hour' ? 'an hour' : `a ${unit}`;
  return `${tenth.format(n)} ${unit}s`;
}

export function clock(time) {
  const t = new Date(time);
  return Number.isNaN(t.getTime()) ? '' : t.toISOString().slice(11, 19);
}

// moment is a time of any day, in UTC.
export const moment = (time) => new Date(time).toISOString().slice(0, 19).replace('T', ' ');

const hundredth = new Intl.NumberFormat('en', {maximumFractionDigits: 2});
export const percent = (share) => `${hundredth.format(100 * share)} %`;
