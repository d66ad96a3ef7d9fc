package rates

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/shards"
)

const (
	// ahead is how far slots are granted ahead of time, or until the next send if that
	// is longer. A chunk is at most that long.
	ahead = 200 * time.Millisecond
	// kept is the part of that which only urgent sends get. Where it is less than one send,
	// an urgent one goes beyond what can be granted, one at a time.
	kept = 0.1
	// behind is how far a slot may begin in the past, when nobody wanted it then: with
	// urgentPace it makes evenly.
	behind = 25 * time.Millisecond
	// urgentPace is how fast urgent slots go, besides the others, as a part of the rate.
	urgentPace = 0.25
	// recently is the time of which answers prove that a provider fails.
	recently = 10 * time.Second
	// memberFor is how long a worker that does not ask is still one.
	memberFor = 3 * time.Second
	// parts are how many a window is counted in, besides the one that is going on and one
	// more, for a 429 is judged a while after it came.
	parts = 60
	// judged is how long after a worker has last said so its 429s may still wait to be
	// judged: it asks each 100 ms meanwhile.
	judged = 300 * time.Millisecond
	// stateFor is how long a rate is kept that nobody asks for.
	stateFor = 48 * time.Hour
)

// script does all that is done to a rate. Its hash has the state (e, r, k, s: Epoch,
// Rate, Mark, Start; c: when it changed), the answers of the epoch (g: good; w: since
// when the recent ones, wg and wb: good and failed), the time up to which slots are
// granted (a; u: urgent ones), how many were good (pb, pc: in the ten
// seconds pb; pd, p0, p1: the most a second on day pd and on the one before) and a field for each worker (m and
// its name: when it asked last, and for how much). Times are Redis's in us. Rates are
// kept as the text that they came as, so that they can be compared.
//
// Where the provider counts by windows, the hash has what it took in the last one, too
// (tw: the window; ts: since when nothing is missing; tb and tc: the part that is going
// on and its count; tl and tn: counts of the parts before, and their sum). Workers of a
// release that does not know of windows tell only what is of the epoch. te and tg are the
// epoch and its good answers as this script left them: what has come to these since is
// theirs. A worker that was told a state and is not there any more has been away, or Redis
// has lost it and another one began anew: something is missing then.
//
// ow is when a worker had 429s last that wait to be judged: until then nobody steps up.
var script = shards.NewScript("asking for a rate", `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function time(n, pace) return math.ceil(n * 1000000 / pace) end -- rounded down, small asks would be for nothing
local function whole(x) return string.format('%.0f', x) end
local key, me = KEYS[1], 'm' .. ARGV[1]
local base, epoch, known = tonumber(ARGV[2]), tonumber(ARGV[3]), {ARGV[4], ARGV[5], ARGV[6]}
local good, failed = tonumber(ARGV[7]), tonumber(ARGV[8])
local proposed = ARGV[9] == '1' and {ARGV[10], ARGV[11], ARGV[12]}
local demand, want, urgent = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])

local judging = ARGV[27] == '1'

local kind = redis.call('TYPE', key)
kind = kind.ok or kind
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', key) end
local h = {}
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do h[all[i]] = all[i + 1] end
local function num(f) return tonumber(h[f]) or 0 end

if ARGV[16] == '1' then
  redis.call('HDEL', key, me)
  return {}
end

local e, changed, g, w, wg, wb = num('e'), num('c'), num('g'), num('w'), num('wg'), num('wb')
local e0, g0 = e, g
if changed == 0 or changed > now then changed = now end
local state = {h.r, h.k, h.s}
local did = ''
local function change(to, at, what)
  state, e, changed, g, w, wg, wb, did = to, at, now, 0, now, 0, 0, what
end
if e == 0 or not tonumber(h.r) or not tonumber(h.k) or not tonumber(h.s) then
  change(known, epoch + 1, epoch > 0 and 'lost' or '')
elseif epoch > e or epoch == e and known[1] ~= state[1] then
  local mine, theirs = tonumber(known[1]), tonumber(state[1])
  local at = math.max(epoch, e) + 1
  if mine > 0 and (theirs == 0 or mine < theirs) then change(known, at, 'lost') else change(state, at, 'lost') end
elseif epoch == e and proposed and (tonumber(proposed[1]) > 0 and tonumber(proposed[1]) <= tonumber(state[1]) or tonumber(state[1]) == 0
  or math.abs(now - num('ow')) >= tonumber(ARGV[28])) then
  change(proposed, e + 1, 'proposed')
elseif epoch == e then
  if now - w > tonumber(ARGV[17]) then w, wg, wb = now, 0, 0 end
  g, wg, wb = g + good, wg + good, wb + failed
end

if judging then redis.call('HSET', key, 'ow', whole(now)) end

local bucket, day = math.floor(now / 10000000), math.floor(now / 86400000000)
local pb, pc, pd, p0, p1 = num('pb'), num('pc'), num('pd'), num('p0'), num('p1')
if pd ~= day then
  p1 = pd == day - 1 and p0 or 0
  p0, pd = 0, day
end
if pb ~= bucket then
  p0, pb, pc = math.max(p0, pc / 10), bucket, 0
end
if epoch == e then pc = pc + good end

local window, taken = tonumber(ARGV[24]), -1
if window > 0 then
  local part, told = window / tonumber(ARGV[25]), tonumber(ARGV[26])
  local number = math.floor(now / part)
  local since, at, n, sum, list = num('ts'), num('tb'), num('tc'), num('tn'), h.tl or ''
  if did == 'lost' or told < 0 or epoch > 0 and not h[me] or num('tw') ~= window or number < at or (number - at - 1) * part > tonumber(ARGV[18]) then
    since, at, n, sum, list = now, number, 0, 0, ''
    if #all == 0 and epoch == 0 then since = now - window end -- the fleet is new
    told = math.max(told, 0)
  else
    if number > at then
      local full = {}
      for v in string.gmatch(list, '%d+') do full[#full + 1] = v end
      while at < number do
        full[#full + 1] = whole(n)
        at, n = at + 1, 0
      end
      local first = math.max(#full - tonumber(ARGV[25]), 1)
      list, sum = table.concat(full, ' ', first), 0
      for i = first, #full do sum = sum + tonumber(full[i]) end
    end
    n = n + math.max(num('te') == e0 and g0 - num('tg') or g0, 0)
  end
  n = n + told
  if now - since >= window then taken = sum + n end
  redis.call('HSET', key, 'tw', whole(window), 'ts', whole(since), 'tb', whole(at), 'tc', whole(n), 'tn', whole(sum), 'tl', list,
    'te', whole(e), 'tg', whole(g))
end

local members, wanted, gone = 1, demand, {}
for f, v in pairs(h) do
  if string.sub(f, 1, 1) == 'm' and f ~= me then
    local last, d = string.match(v, '^(%d+) (%d+)$')
    if last and now - last < tonumber(ARGV[18]) then
      members, wanted = members + 1, wanted + d
    else
      gone[#gone + 1] = f
    end
  end
end
if #gone > 0 then redis.call('HDEL', key, unpack(gone, 1, math.min(#gone, 1000))) end

local a, u, from, n, ufrom, un = num('a'), num('u'), 0, 0, 0, 0
local rate = tonumber(state[1])
if base > 0 and (rate == 0 or rate > base) then rate = base end
if rate > 0 then
  local ahead = math.max(tonumber(ARGV[19]), time(1, rate))
  if a > now + 3 * ahead then a = now + ahead end -- Redis's clock went back: with one beyond, it is 2 at the most
  if u > now + 2 * ahead then u = now + ahead end
  a, u = math.max(a, now - tonumber(ARGV[20])), math.max(u, now)
  local room = math.floor((now + ahead - a) * rate / 1000000 + 0.000001)
  local keep = math.floor(rate * ahead / 1000000 * tonumber(ARGV[21]))
  local pace = rate * tonumber(ARGV[22])
  un = math.max(math.min(urgent, room, math.floor((now + ahead - u) * pace / 1000000 + 0.000001)), 0)
  if un > 0 then
    ufrom, u, a = u - now, u + time(un, pace), a + time(un, rate)
  end
  if keep == 0 and urgent > 0 and un == 0 and room == 0 then -- nothing is kept for it: it goes one beyond, and what follows pays for that
    un, a = 1, a + time(1, rate)
  end
  local fair = math.max(math.ceil(rate * ahead / 1000000 * demand / math.max(wanted, 1)), 1)
  local left = math.max(math.min(urgent, room) - un, 0) -- urgent ones too, in their turn
  local spare = room - un - left - keep
  n = left + math.max(math.min(want, math.max(fair, spare - math.floor(rate * ahead / 2000000)), spare), 0) -- more than half a chunk is left by all who have asked
  if n > 0 then
    from, a = a - now, a + time(n, rate)
  end
end

redis.call('HSET', key, 'e', whole(e), 'r', state[1], 'k', state[2], 's', state[3], 'c', whole(changed),
  'g', whole(g), 'w', whole(w), 'wg', whole(wg), 'wb', whole(wb), 'a', whole(a), 'u', whole(u),
  'pb', whole(pb), 'pc', whole(pc), 'pd', whole(pd), 'p0', tostring(p0), 'p1', tostring(p1), me, whole(now) .. ' ' .. whole(demand))
redis.call('PEXPIRE', key, ARGV[23])
return {whole(e), state[1], state[2], state[3], whole(now - changed), whole(g), whole(wg), whole(wb),
  tostring(math.max(p0, p1, pc / 10)), whole(members), whole(from), whole(n), whole(ufrom), whole(un), whole(taken), did}
`)

// ask is what a worker tells and wants.
type ask struct {
	known        State // as it was told last
	good, failed int   // answers since the last ask to sends of that epoch
	taken        int   // good ones of any epoch; -1 = some of them are too old to say when they came
	judging      bool  // 429s of that epoch wait for the answers to what else was under way
	proposed     *State
	demand       int // sends that it could make within ahead
	want, urgent int // of these, what it has not been granted: others and urgent ones
}

// grant is what comes of it.
type grant struct {
	state    State
	changed  string // "proposed": by this ask; "lost": this ask found that Redis had lost it
	seen     seen
	members  int // workers that ask, this one too
	sends    int
	from     time.Duration // from now on
	urgent   int
	urgentAt time.Duration
}

// store is a rate in Redis.
type store struct {
	client shards.Client
	key    string
	member string
	base   float64
	window time.Duration // 0 = none is counted
}

func us(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

func text(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// exchange tells and asks, in one command.
func (s *store) exchange(ctx context.Context, a *ask) (grant, error) {
	p, proposes := a.known, "0"
	if a.proposed != nil {
		p, proposes = *a.proposed, "1"
	}
	answer, err := s.run(ctx, "0", a, p, proposes)
	if err != nil {
		return grant{}, err
	}
	g, ok := readGrant(answer)
	if !ok {
		return grant{}, fmt.Errorf("asking for a rate: an answer of %d values that is none", len(answer))
	}
	return g, nil
}

// leave says that this worker asks no more. It is best effort.
func (s *store) leave(ctx context.Context) error {
	_, err := s.run(ctx, "1", &ask{}, State{}, "0")
	return err
}

func (s *store) run(ctx context.Context, leaves string, a *ask, p State, proposes string) ([]string, error) {
	judging := "0"
	if a.judging {
		judging = "1"
	}
	call := script.Call(ctx, []any{nil, nil, 1, s.key,
		s.member, text(s.base), a.known.Epoch, text(a.known.Rate), text(a.known.Mark), text(a.known.Start),
		a.good, a.failed, proposes, text(p.Rate), text(p.Mark), text(p.Start),
		a.demand, a.want, a.urgent, leaves,
		us(recently), us(memberFor), us(ahead), us(behind), text(kept), text(urgentPace), stateFor.Milliseconds(),
		us(s.window), parts, a.taken, judging, us(judged)})
	calls := []shards.Call{call}
	if err := script.Run(ctx, s.client, calls); err != nil {
		return nil, err
	}
	return calls[0].Cmd.StringSlice()
}

// readGrant reads the script's answer.
func readGrant(answer []string) (g grant, ok bool) {
	const values = 16
	if len(answer) != values {
		return g, false
	}
	var n [values - 1]float64
	for i := range n {
		f, err := strconv.ParseFloat(answer[i], 64)
		if err != nil || !(f > -1e15 && f < 1e15) {
			return g, false
		}
		n[i] = f
	}
	wait := func(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }
	g = grant{
		state:   State{Epoch: uint32(n[0]), Rate: n[1], Mark: n[2], Start: n[3]},
		seen:    seen{age: wait(max(n[4], 0)), good: int(n[5]), recentGood: int(n[6]), recentFailed: int(n[7]), peak: n[8], taken: int(n[14])},
		members: int(n[9]), from: wait(n[10]), sends: int(n[11]), urgentAt: wait(n[12]), urgent: int(n[13]), changed: answer[values-1],
	}
	return g, g.state.Rate >= 0 && g.members >= 1 && g.sends >= 0 && g.urgent >= 0
}
