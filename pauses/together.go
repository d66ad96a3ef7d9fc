package pauses

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

const (
	// evidenceFor is how long evidence counts; workers tell it every second.
	evidenceFor = 3 * time.Second
	// turn is how long a round waits for a second worker, and for those whose turn it is.
	turn = 1500 * time.Millisecond
	// evidenceStays is how long the hash stays that nobody writes.
	evidenceStays = time.Hour
)

// consultScript does all that is done to evidence. Its hash has two kinds of fields;
// others are left alone.
//
//	w <worker> <route>  at good bad closed asks leased: what a worker told at a time, and when it had probes last
//	r <route>           fails next well started, and twice: member n at good bad ("-" = nobody)
//
// The second is the round of probes: how many in a row went badly, when the next may
// begin, when one went well (0 = none since), and who has how many probes since when, and
// their answers. One worker gets all probes but one, a second one the last. Whose last
// probes are longest ago comes first. A round is over when both are answered or have
// lapsed, or the first is and nobody else came: it went well if one of them saw mostly
// good answers. If nobody answered, the next begins at once. Times are Redis's in ms.
var consultScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local me, lapse, turn, stays = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local most, timeout, first, longest = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local function whole(x) return string.format('%.0f', x) end
local function kind(key) local k = redis.call('TYPE', key); return k.ok or k end

local told = {}
if kind(KEYS[1]) == 'zset' then
  told = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. whole(now), '+inf', 'WITHSCORES')
end
table.insert(told, whole(now))

local k = kind(KEYS[2])
if k ~= 'hash' and k ~= 'none' then redis.call('DEL', KEYS[2]) end
local all, rounds, mine, others, routes = redis.call('HGETALL', KEYS[2]), {}, {}, {}, {}
local function about(route)
  if not others[route] then others[route] = {}; table.insert(routes, route) end
  return others[route]
end
for i = 1, #all, 2 do
  local f, v = all[i], all[i + 1]
  local member, route = string.match(f, '^w (%S+) (%S+)$')
  if member then
    local at, good, bad, closed, asks, leased = string.match(v, '^(%d+) (%d+) (%d+) ([01]) ([01]) (%d+)$')
    at, leased = tonumber(at), tonumber(leased)
    if not at or at > now or now - at > lapse and (member ~= me or now - at > longest + 2 * timeout) then
      redis.call('HDEL', KEYS[2], f)
    elseif member == me then
      mine[route] = leased
    else
      table.insert(about(route), {good = tonumber(good), bad = tonumber(bad), closed = closed == '1', asks = asks == '1', leased = leased})
    end
  else
    route = string.match(f, '^r (%S+)$')
    if route then rounds[route] = v end
  end
end

local function round(route)
  local v = {}
  for word in string.gmatch(rounds[route] or '', '%S+') do table.insert(v, word) end
  local function num(i) local n = tonumber(v[i]); return n and n >= 0 and n < 1e15 and n or 0 end
  local r = {fails = num(1), next = num(2), well = num(3), started = num(4)}
  for s = 1, 2 do
    local at = 5 * s
    if v[at] and v[at] ~= '-' and num(at + 2) <= now then
      r[s] = {member = v[at], n = num(at + 1), at = num(at + 2), good = num(at + 3), bad = num(at + 4)}
    end
  end
  if r.next > now + longest then r.next = now end
  if r.started > now then r.started = now end
  if r.well > now then r.well = 0 end
  return r
end
local function over(s) return s.good + s.bad >= s.n or now - s.at >= timeout end
local function judge(r)
  local well, answered, all = false, false, true
  for s = 1, 2 do
    if r[s] then
      well = well or over(r[s]) and r[s].good > 0 and r[s].good >= r[s].bad
      answered = answered or r[s].good + r[s].bad > 0
      all = all and over(r[s])
    end
  end
  if well then
    r.fails, r.next, r.well, r[1], r[2] = 0, now, now, nil, nil
  elseif (r[1] or r[2]) and all and ((r[1] and r[2]) or now - r.started >= turn) then
    if answered then
      r.fails = r.fails + 1
      r.next = now + math.min(first * 2 ^ math.min(r.fails, 40), longest)
    end
    r[1], r[2] = nil, nil
  end
end

local answers = {}
local wrote = false
for i = 9, #ARGV, 8 do
  local route, good, bad, closed = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local since, asks = now - tonumber(ARGV[i + 4]), ARGV[i + 5] == '1'
  local pgood, pbad = tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7])
  local r, leased, probes, well = round(route), mine[route] or 0, 0, '0'
  for s = 1, 2 do
    if r[s] and r[s].member == me then
      r[s].good, r[s].bad = r[s].good + pgood, r[s].bad + pbad
      if pgood + pbad > 0 then r[s].n = math.min(r[s].n, r[s].good + r[s].bad) end
    end
  end
  judge(r)
  if asks and r.well > 0 and since <= r.well and now - r.well <= longest then
    well = '1'
  elseif asks and now >= r.next then
    local before = 0
    for _, o in ipairs(about(route)) do
      if o.asks and o.leased < leased then before = before + 1 end
    end
    local free = (r[1] and 0 or 1) + (r[2] and 0 or 1)
    local n = 0
    if before < free or now - r.next >= turn and not r[1] then
      if not r[1] then
        n = math.max(most - 1, 1)
        r.started, r.well = now, 0
        r[1] = {member = me, n = n, at = now, good = 0, bad = 0}
      elseif not r[2] and r[1].member ~= me and most > r[1].n then
        n = most - math.max(most - 1, 1)
        if n > 0 then r[2] = {member = me, n = n, at = now, good = 0, bad = 0} end
      end
    end
    if n > 0 then probes, leased = n, now end
  end
  local v = {whole(r.fails), whole(r.next), whole(r.well), whole(r.started)}
  for s = 1, 2 do
    local l = r[s] or {member = '-', n = 0, at = 0, good = 0, bad = 0}
    for _, w in ipairs({l.member, whole(l.n), whole(l.at), whole(l.good), whole(l.bad)}) do table.insert(v, w) end
  end
  redis.call('HSET', KEYS[2], 'r ' .. route, table.concat(v, ' '))
  redis.call('HSET', KEYS[2], 'w ' .. me .. ' ' .. route, table.concat({whole(now), good, bad, closed, asks and '1' or '0', whole(leased)}, ' '))
  mine[route], wrote = nil, true
  about(route)
  answers[route] = {probes, math.max(r.next - now, 0), well}
end
for route in pairs(mine) do redis.call('HDEL', KEYS[2], 'w ' .. me .. ' ' .. route) end
if wrote then redis.call('PEXPIRE', KEYS[2], stays) end

local words = {}
for _, route in ipairs(routes) do
  local workers, closed, failing, good, bad = 0, 0, 0, 0, 0
  for _, o in ipairs(others[route]) do
    good, bad = good + o.good, bad + o.bad
    if o.bad > 0 then workers = workers + 1 end
    if o.closed then closed = closed + 1 end
    if o.closed and o.bad > 0 then failing = failing + 1 end
  end
  local a = answers[route] or {0, 0, '0'}
  for _, w in ipairs({route, workers, closed, failing, good, bad, a[1], whole(a[2]), a[3]}) do table.insert(words, tostring(w)) end
end
return {told, words}
`)

// wordLength is how many values a word has in the answer.
const wordLength = 9

// Consult implements gates.FleetStore. What it cannot read is left out, and told to the
// log now and then.
func (s *Store) Consult(ctx context.Context, es []gates.Evidence) ([]gates.Pause, []gates.Word, error) {
	o := &s.options
	if o.Member == "" || o.Probes < 1 {
		return nil, nil, errors.New("pauses: a store without a member's name and probes judges nothing together")
	}
	flag := func(is bool) string {
		if is {
			return "1"
		}
		return "0"
	}
	args := []any{o.Member, evidenceFor.Milliseconds(), turn.Milliseconds(), evidenceStays.Milliseconds(),
		o.Probes, o.ProbeTimeout.Milliseconds(), o.FirstPause.Milliseconds(), o.LongestPause.Milliseconds()}
	for i := range es {
		e := &es[i]
		args = append(args, e.Route.String(), e.Good, e.Bad, flag(e.Closed), e.For.Milliseconds(), flag(e.Asks), e.Answered.Good, e.Answered.Bad)
	}
	answer, err := consultScript.Run(ctx, s.client, []string{s.key, s.evidence}, args...).Slice()
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", s.evidence, err)
	}
	if len(answer) != 2 {
		return nil, nil, fmt.Errorf("reading %s: an answer of %d parts", s.evidence, len(answer))
	}
	told, ok := texts(answer[0])
	words, fine := texts(answer[1])
	if !ok || !fine || len(words)%wordLength != 0 {
		return nil, nil, fmt.Errorf("reading %s: an answer of another form", s.evidence)
	}
	ps, err := s.pauses(told)
	if err != nil {
		return nil, nil, err
	}
	var ws []gates.Word
	for ; len(words) > 0; words = words[wordLength:] {
		if w, ok := s.word(words); ok {
			ws = append(ws, w)
		} else {
			s.garbage(s.evidence, words[0])
		}
	}
	return ps, ws, nil
}

// texts is a list of texts in an answer.
func texts(v any) (list []string, ok bool) {
	all, ok := v.([]any)
	for _, one := range all {
		text, is := one.(string)
		ok = ok && is
		list = append(list, text)
	}
	return list, ok
}

// word reads one word. Its numbers are within what workers can have told.
func (s *Store) word(v []string) (w gates.Word, ok bool) {
	if w.Route, ok = push.ParseRoute(v[0]); !ok {
		return w, false
	}
	var left int
	for i, n := range []*int{&w.Workers, &w.Closed, &w.Failing, &w.Good, &w.Bad, &w.Probes, &left} {
		var err error
		if *n, err = strconv.Atoi(v[1+i]); err != nil || *n < 0 || *n > 1e12 {
			return w, false
		}
	}
	w.Left, w.Well = time.Duration(left)*time.Millisecond, v[8] == "1"
	return w, w.Probes <= s.options.Probes && w.Left <= s.options.LongestPause
}
