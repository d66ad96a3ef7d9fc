package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// tables are Tables in memory: partitions of rows by their primary key.
type tables struct {
	mu      sync.Mutex
	rows    map[string]map[string][]any
	reads   int
	writes  int
	flying  int // queries in progress
	most    int
	told    []string               // all that was ever said
	failing string                 // statements that begin so fail
	pause   func(statement string) // in each query, in progress
}

var errTablesAway = errors.New("no hosts available")

func partition(table string, values []any) string {
	return fmt.Sprintf("%s %x %s", table, values[0], values[1].(time.Time).Format(time.DateOnly))
}

func (m *tables) begin(statement string, values []any) error {
	m.mu.Lock()
	m.flying++
	m.most = max(m.most, m.flying)
	m.told = append(m.told, fmt.Sprint(statement, values))
	pause, failing := m.pause, m.failing
	m.mu.Unlock()
	if pause != nil {
		pause(statement)
	}
	if failing != "" && strings.HasPrefix(statement, failing) {
		return errTablesAway
	}
	return nil
}

func (m *tables) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying--
}

func (m *tables) Exec(_ context.Context, statement string, values ...any) error {
	defer m.end()
	if err := m.begin(statement, values); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	switch statement {
	case deleteDay:
		delete(m.rows, partition("days", values))
		return nil
	case deleteTimes:
		delete(m.rows, partition("times", values))
		return nil
	}
	table, key := "days", fmt.Sprint(values[2:5]...)
	if statement == insertTime {
		table, key = "times", fmt.Sprint(values[2:6]...)
	}
	if m.rows == nil {
		m.rows = map[string]map[string][]any{}
	}
	at := partition(table, values)
	if m.rows[at] == nil {
		m.rows[at] = map[string][]any{}
	}
	m.rows[at][key] = values[2 : len(values)-1]
	return nil
}

func (m *tables) Query(_ context.Context, statement string, values, dest []any, row func()) error {
	defer m.end()
	if err := m.begin(statement, values); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	table := "days"
	if statement == selectTimes {
		table = "times"
	}
	for _, found := range m.rows[partition(table, values)] {
		for i, to := range dest {
			switch to := to.(type) {
			case *int16:
				*to = found[i].(int16)
			case *int32:
				*to = found[i].(int32)
			case *int64:
				*to = found[i].(int64)
			}
		}
		row()
	}
	return nil
}

// counts returns how often was read and written since the last time.
func (m *tables) counts() (reads, writes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { m.reads, m.writes = 0, 0 }()
	return m.reads, m.writes
}

func deviceDay(n int) Rule {
	return Rule{Name: "device", Per: PerDeviceType, Max: n, Calendar: Day, Algorithm: EventSet}
}

func deviceMinute(n int) Rule {
	return Rule{Name: "minute", Per: PerDeviceType, Max: n, Window: time.Minute, Algorithm: EventSet}
}

// logging makes a limiter whose rules of devices count in tables. Without rules
// of users it needs no client.
func logging(t testing.TB, client redis.UniversalClient, tables Tables, rules ...Rule) *Limiter {
	t.Helper()
	l, err := New(client, rules, WriteVersion2(), CountDevicesIn(NewDeviceLog(tables, 8)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func decide(t testing.TB, l *Limiter, reqs ...*Request) {
	t.Helper()
	if err := l.Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
}

func to(id, kind string, after time.Duration, devices ...uint32) *Request {
	r := &Request{Owner: "u", ID: id, Type: kind, Priority: 3, At: start.Add(after)}
	for _, d := range devices {
		r.Devices = append(r.Devices, Device{Hash: d})
	}
	return r
}

// outcome is the answer and the devices that are refused, each with its rule.
func outcome(r *Request) string {
	s := words(r)
	for _, d := range r.Devices {
		if d.Refused {
			s += fmt.Sprintf(" %d:%s", d.Hash, d.Rule)
		}
	}
	return s
}

// Effects come in their order: what rules of devices refuse altogether spends
// nothing of the user, and what rules of users refuse nothing of a device.
func TestALogAndTheStateAreSpentTogether(t *testing.T) {
	client, m := shardstest.Start(t), &tables{}
	l := logging(t, client, m, deviceDay(1), Rule{Name: "daily", Per: PerUser, Max: 2, Calendar: Day, Algorithm: FixedWindow})
	for i, c := range []struct {
		id, kind string
		devices  []uint32
		want     string
		writes   int
		why      string
	}{
		{"a", "promo", []uint32{1, 2}, "ok", 2, "the first for both"},
		{"a", "promo", []uint32{1, 2}, "ok", 0, "once more: it stands there"},
		{"b", "promo", []uint32{1, 3}, "ok 1:device", 1, "one has had its promo"},
		{"c", "promo", []uint32{1, 2, 3}, "no device 1:device 2:device 3:device", 0, "nothing left"},
		{"d", "order", []uint32{1}, "no daily", 0, "two of the user's two: c has spent none"},
		{"b", "promo", []uint32{1, 3}, "ok 1:device", 0, "what was allowed stays allowed, and what was refused refused"},
	} {
		m.counts()
		r := to(c.id, c.kind, time.Duration(i)*time.Second, c.devices...)
		r.State = stored(t, client, "u")
		decide(t, l, r)
		_, writes := m.counts()
		if got := outcome(r); got != c.want || writes != c.writes {
			t.Errorf("%d, %s: %q with %d writes, want %q with %d: %s", i, c.id, got, writes, c.want, c.writes, c.why)
		}
	}
	r := to("e", "order", 24*time.Hour, 1)
	if decide(t, l, r); !r.Allowed {
		t.Errorf("the day after: %q; d had spent nothing of device 1", outcome(r))
	}
	r = to("f", "order", 25*time.Hour, 2, 1)
	if decide(t, l, r); r.Devices[0] != (Device{Hash: 2}) || r.Devices[1] != (Device{Hash: 1, Refused: true, Current: 1, Limit: 1, Rule: "device"}) {
		t.Errorf("after e: %+v", r.Devices)
	}
}

// What a batch decides counts for what comes after it in the batch, and not when
// it is refused; deciding again after a conflict begins anew.
func TestABatchCountsItself(t *testing.T) {
	client, m := shardstest.Start(t), &tables{}
	l := logging(t, client, m, deviceDay(2), Rule{Name: "orders", Per: PerUser, Types: []string{"order"}, Max: 1, Window: time.Hour})
	ask := func(state []byte, ids ...string) string {
		var reqs []*Request
		for _, id := range ids {
			r := to(id, "order", 0, 1)
			r.State = state
			reqs = append(reqs, r)
		}
		decide(t, l, reqs...)
		var all []string
		for _, r := range reqs {
			all = append(all, outcome(r))
		}
		return strings.Join(all, ", ")
	}
	if got, want := ask(nil, "a", "b", "a"), "ok, no orders, ok"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, writes := m.counts(); writes != 1 {
		t.Errorf("%d writes for one notification that was allowed", writes)
	}
	// The state is stale: the answer of the first round, allowed, is undone.
	if got, want := ask(nil, "c"), "no orders"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, writes := m.counts(); writes != 0 {
		t.Errorf("%d writes for one that was not allowed in the end", writes)
	}
}

// One read answers about all types of a device. Where no window is running yet, it
// is looked for in the other days that it is somewhere; what no rule counts is
// read not at all.
func TestHowOftenALogIsRead(t *testing.T) {
	m := &tables{}
	news := deviceDay(9)
	news.Types = []string{"news", "promo"}
	l := logging(t, nil, m, news)
	for _, c := range []struct {
		kind  string
		after time.Duration
		reads int
		why   string
	}{
		{"order", 0, 0, "no rule is about it"},
		{"news", 0, 2, "noon of UTC: somebody's clock says tomorrow"},
		{"news", time.Minute, 1, "the day is running"},
		{"promo", time.Minute, 1, "another type, the same partition"},
		{"news", 23 * time.Hour, 3, "11:00: two other dates stand on clocks"},
	} {
		m.counts()
		decide(t, l, to(c.kind+c.after.String(), c.kind, c.after, 1))
		if reads, _ := m.counts(); reads != c.reads {
			t.Errorf("%s after %v: %d reads, want %d: %s", c.kind, c.after, reads, c.reads, c.why)
		}
	}
	held := to("held", "news", 24*time.Hour, 1)
	held.Since = start
	m.counts()
	if decide(t, l, held); m.reads != 2 {
		t.Errorf("%d reads for a record from yesterday, want its day too", m.reads)
	}
}

// A record that was allowed before midnight and comes back after it is known.
func TestALogKnowsYesterday(t *testing.T) {
	m := &tables{}
	l := logging(t, nil, m, deviceDay(1))
	decide(t, l, to("a", "x", 0, 1), to("b", "x", 24*time.Hour, 2))
	late, next := to("a", "x", 13*time.Hour, 1), to("n", "x", 13*time.Hour, 1)
	late.Since = start
	m.counts()
	if decide(t, l, late, next); !late.Allowed || !next.Allowed {
		t.Errorf("%q, then %q; want the first known and the day free", outcome(late), outcome(next))
	}
}

// Windows that slide look over the midnight of UTC, and end to the millisecond.
func TestALogSlides(t *testing.T) {
	m := &tables{}
	l := logging(t, nil, m, deviceMinute(2))
	midnight := 12 * time.Hour
	for _, c := range []struct {
		id    string
		after time.Duration
		want  string
	}{
		{"a", midnight - 40*time.Second, "ok"},
		{"b", midnight - 10*time.Second, "ok"},
		{"c", midnight + 5*time.Second, "no minute 1:minute"},
		{"a", midnight + 6*time.Second, "ok"},
		{"c", midnight + 20*time.Second - time.Millisecond, "no minute 1:minute"},
		{"c", midnight + 20*time.Second, "ok"},
		{"d", midnight + 30*time.Second, "no minute 1:minute"},
	} {
		r := to(c.id, "x", c.after, 1)
		if decide(t, l, r); outcome(r) != c.want {
			t.Errorf("%s after midnight%+v: %q, want %q", c.id, c.after-midnight, outcome(r), c.want)
		}
	}
}

// An event is written to each table that counts it; what a death between two writes
// left out is added, and it stays one event.
func TestBothTables(t *testing.T) {
	m := &tables{}
	l := logging(t, nil, m, deviceDay(2), deviceMinute(2))
	m.failing = insertTime[:30]
	if err := l.Decide(t.Context(), []*Request{to("a", "x", 0, 1)}); !errors.Is(err, errTablesAway) {
		t.Fatalf("a write that failed: %v", err)
	}
	m.failing = insertDay[:30]
	if err := l.Decide(t.Context(), []*Request{to("b", "x", 0, 1)}); !errors.Is(err, errTablesAway) {
		t.Fatalf("a write that failed: %v", err)
	}
	m.failing = ""
	for _, id := range []string{"a", "b", "a"} {
		if r := to(id, "x", time.Second, 1); true {
			if decide(t, l, r); !r.Allowed {
				t.Errorf("%s: %q", id, outcome(r))
			}
		}
	}
	if len(m.rows) != 2 {
		t.Errorf("%d partitions", len(m.rows))
	}
	for name, rows := range m.rows {
		if len(rows) != 2 {
			t.Errorf("%s has %d rows, want both events", name, len(rows))
		}
	}
	r := to("c", "x", 2*time.Second, 1)
	if decide(t, l, r); r.Allowed || r.Current != 2 {
		t.Errorf("%q with %d, want two events that count once each", outcome(r), r.Current)
	}
}

// While the tables are away nothing is decided and nothing spent.
func TestTablesAwayIsAnError(t *testing.T) {
	client, m := shardstest.Start(t), &tables{failing: "SELECT"}
	l := logging(t, client, m, deviceDay(1), perUser(1, time.Hour))
	err := l.Decide(t.Context(), []*Request{to("a", "x", 0, 1)})
	if !errors.Is(err, errTablesAway) || stored(t, client, "u") != nil {
		t.Errorf("%v, state %x", err, stored(t, client, "u"))
	}
	if err := NewDeviceLog(m, 1).Check(t.Context()); !errors.Is(err, errTablesAway) {
		t.Errorf("checked: %v", err)
	}
	m.failing = "SELECT type,id,channel,at,about FROM device_limit_times"
	if err := NewDeviceLog(m, 1).Check(t.Context()); !errors.Is(err, errTablesAway) {
		t.Errorf("checked without one table: %v", err)
	}
	m.failing = ""
	if err := NewDeviceLog(m, 1).Check(t.Context()); err != nil {
		t.Error(err)
	}
	r := to("a", "x", 0, 1)
	if _, err := l.Usage(t.Context(), r); err != nil {
		t.Error(err)
	}
	m.failing = "SELECT"
	if _, err := l.Usage(t.Context(), r); err == nil {
		t.Error("usage without tables")
	}
}

// A user who moves keeps the window that is running to its end, as in the state:
// both backends agree about a long journey.
func TestALogAndTheStateAgree(t *testing.T) {
	var zones []*time.Location
	for _, hours := range []int{-12, -5, 0, 3, 9, 14} {
		zones = append(zones, time.FixedZone(fmt.Sprint(hours), hours*3600))
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		hour := Rule{Name: "hour", Per: PerDeviceType, Max: 3, Window: time.Hour}
		rules := []Rule{deviceDay(5), hour, {Name: "news", Per: PerDeviceType, Max: 4, Calendar: Day, Algorithm: FixedWindow, Apps: []string{"shop"}, Distinct: []string{"a"}}}
		judge, l := alone(t, rules...), logging(t, nil, &tables{}, rules...)
		zone, at, refused := zones[0], start, 0
		for step := range 300 {
			at = at.Add(time.Duration(random.Int64N(int64(40 * time.Minute))))
			if random.IntN(12) == 0 {
				zone = zones[random.IntN(len(zones))]
			}
			one := Request{Owner: "u", ID: fmt.Sprint(step), Type: []string{"a", "b", "c"}[random.IntN(3)], App: []string{"shop", "bank"}[random.IntN(2)],
				Priority: uint8(2 + random.IntN(4)), At: at, Zone: zone, Devices: []Device{{Hash: 1}}}
			other := one
			other.Devices = slices.Clone(one.Devices)
			judge(&one)
			decide(t, l, &other)
			if one.Decision != other.Decision {
				t.Fatalf("seed %d, step %d, %v: the state says %+v, the log %+v", seed, step, at.In(zone), one.Decision, other.Decision)
			}
			if !one.Allowed {
				refused++
			}
		}
		if refused < 10 || refused > 290 {
			t.Errorf("seed %d: %d of 300 refused: it shows nothing", seed, refused)
		}
	}
}

// The day that counts a delivery runs on to its end for what a user who has moved gets
// next, also where no row says so yet: in the same batch.
func TestADayRunsOnFromItsFirstDelivery(t *testing.T) {
	for _, together := range []bool{true, false} {
		l := logging(t, nil, &tables{}, deviceDay(1))
		here, moved := to("here", "x", 0, 1), to("moved", "x", time.Hour, 1)
		moved.Zone = time.FixedZone("east", 14*3600)
		if together {
			decide(t, l, here, moved)
		} else {
			decide(t, l, here)
			decide(t, l, moved)
		}
		// Noon was UTC's; the day in the east ends ten hours after UTC's.
		if !here.Allowed || moved.Allowed || moved.RetryAfter != 11*time.Hour {
			t.Errorf("in one batch %t: got %s, then %s with room in %v, want it at UTC's midnight, in 11 h", together, outcome(here), outcome(moved), moved.RetryAfter)
		}
	}
}

// An id that is asked about in two zones, as nobody does, or twice at once has no
// more than its row.
func TestAnIDIsWrittenOnce(t *testing.T) {
	m := &tables{}
	l := logging(t, nil, m, deviceDay(3))
	decide(t, l, to("a", "x", 0, 1), to("a", "x", 0, 1), to("a", "x", 0, 1, 1))
	if _, writes := m.counts(); writes != 1 {
		t.Errorf("%d writes of one id", writes)
	}
}

// No user, token, id or type stands in a table.
func TestALogHasNoNames(t *testing.T) {
	m := &tables{}
	l := logging(t, nil, m, deviceDay(3), deviceMinute(3))
	if d, err := l.Allow(t.Context(), "user-name", "token-in-clear", "type-name", "id-name"); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	said := strings.Join(m.told, "\n")
	for _, name := range []string{"user-name", "token-in-clear", "type-name", "id-name"} {
		if strings.Contains(said, name) || strings.Contains(said, fmt.Sprint([]byte(name))[1:20]) {
			t.Errorf("%s was told", name)
		}
	}
	a, b := logKey{"u", 1}.hash(), logKey{"u", 2}.hash()
	if len(a) != keySize || slices.Equal(a, b) {
		t.Errorf("keys %x and %x", a, b)
	}
}

// A pulled inbox asks without knowing more than names.
func TestAllow(t *testing.T) {
	m := &tables{}
	l := logging(t, nil, m, deviceDay(2))
	for i, want := range []bool{true, true, false, true} {
		d, err := l.Allow(t.Context(), "u", "d", "news", []string{"a", "b", "c", "a"}[i])
		if err != nil || d.Allowed != want {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
		if !want && (d.Dimension != Dimension(PerDeviceType) || d.Rule != "device" || d.Current != 2 || d.Limit != 2 || d.RetryAfter <= 0) {
			t.Errorf("refused without saying why: %+v", d)
		}
	}
	m.failing = "INSERT"
	if _, err := l.Allow(t.Context(), "u", "other", "news", "a"); !errors.Is(err, errTablesAway) {
		t.Errorf("not stored: %v", err)
	}
}

// A partition that junk types have filled refuses.
func TestAFullLogRefuses(t *testing.T) {
	m := &tables{}
	l := logging(t, nil, m, deviceDay(1))
	var reqs []*Request
	for i := range maxEvents {
		reqs = append(reqs, to("a", fmt.Sprint(i), 0, 1))
		reqs[i].ID = fmt.Sprint(i)
	}
	decide(t, l, reqs...)
	r := to("b", "one more", 0, 1)
	if decide(t, l, r); r.Rule != StateFull || r.Devices[0].Rule != StateFull {
		t.Errorf("%+v, %d rows", r.Decision, len(m.told))
	}
	counted := deviceDay(1)
	counted.CountCritical = true
	r = to("b", "a code", 0, 1)
	r.Priority = critical
	if decide(t, logging(t, nil, m, counted), r); !r.Allowed || r.Devices[0].Refused {
		t.Errorf("critical: %+v", r.Decision)
	}
}

// No more queries are in flight than the log may have, over all its callers.
func TestPlacesOfALog(t *testing.T) {
	m := &tables{}
	log := NewDeviceLog(m, 3)
	full := make(chan struct{})
	arrived := 0
	m.pause = func(string) { // the first three wait for each other
		m.mu.Lock()
		if arrived++; arrived == 3 {
			close(full)
		}
		m.mu.Unlock()
		<-full
	}
	var wg sync.WaitGroup
	for w := range 4 {
		l, err := New(nil, []Rule{deviceDay(1)}, WriteVersion2(), CountDevicesIn(log))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			var reqs []*Request
			for d := range uint32(10) {
				reqs = append(reqs, to(fmt.Sprint(w), "x", 0, d))
			}
			if err := l.Decide(t.Context(), reqs); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if m.most != 3 {
		t.Errorf("%d queries at once, want 3", m.most)
	}
}

// However much a batch reads and writes, what waits for a place is few goroutines.
func TestALogStartsNoMoreThanItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewDeviceLog(&tables{}, 3)
		before, release := runtime.NumGoroutine(), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := log.each(t.Context(), 1000, func(context.Context, int) error { <-release; return nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("%d goroutines for three places", n)
		}
		close(release)
		wg.Wait()
	})
}

// Callers who all read before any has written are let through, each once: the worst
// that can happen, and no more than the bound says.
func TestTheWorstOvershoot(t *testing.T) {
	const callers = 32
	m, all := &tables{}, make(chan struct{})
	waiting := 0
	m.pause = func(statement string) {
		if !strings.HasPrefix(statement, "INSERT") {
			return
		}
		m.mu.Lock()
		if waiting++; waiting == callers {
			close(all)
		}
		m.mu.Unlock()
		<-all
	}
	var wg sync.WaitGroup
	allowed := make([]bool, callers)
	for i := range callers {
		l := logging(t, nil, m, deviceDay(1))
		wg.Go(func() {
			r := to(fmt.Sprint(i), "x", 0, 1)
			if err := l.Decide(t.Context(), []*Request{r}); err != nil {
				t.Error(err)
			}
			allowed[i] = r.Allowed
		})
	}
	wg.Wait()
	if slices.Contains(allowed, false) {
		t.Error("somebody was refused who could not know of the others: the test shows nothing")
	}
	r := to("later", "x", time.Second, 1)
	if decide(t, logging(t, nil, m, deviceDay(1)), r); r.Allowed || r.Current != callers {
		t.Errorf("%q with %d counted, want all %d", outcome(r), r.Current, callers)
	}
}

// A caller who gives up ends.
func TestALogEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &tables{pause: func(string) { cancel() }}
	l := logging(t, nil, m, deviceDay(1))
	var reqs []*Request
	for d := range uint32(50) {
		reqs = append(reqs, to("a", "x", 0, d))
	}
	if err := l.Decide(ctx, reqs); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	m.counts()
	if d, err := l.Allow(ctx, "u", "device", "x", "later"); !errors.Is(err, context.Canceled) || m.reads+m.writes > 0 {
		t.Errorf("asked too late: %+v after %d reads and %d writes, %v", d, m.reads, m.writes, err)
	}
}

// A caller who gives up while others have all places has no answer: what was not read
// is not taken for nothing.
func TestALogDoesNotDecideWithoutItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewDeviceLog(&tables{}, 1)
		log.places <- struct{}{}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		err := log.each(ctx, 1, func(context.Context, int) error {
			t.Error("ran without a place")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
	})
}

func TestRulesThatALogCannotCarry(t *testing.T) {
	log := CountDevicesIn(NewDeviceLog(&tables{}, 0))
	for _, c := range []struct {
		why  string
		rule Rule
		good bool
	}{
		{"a day", deviceDay(1), true},
		{"a minute that slides", deviceMinute(1), true},
		{"an hour that slides", Rule{Name: "r", Per: PerDeviceType, Max: 1, Window: time.Hour}, true},
		{"more than an hour", Rule{Name: "r", Per: PerDeviceType, Max: 1, Window: time.Hour + time.Millisecond}, false},
		{"an hour of the clock", Rule{Name: "r", Per: PerDeviceType, Max: 1, Calendar: Hour, Algorithm: FixedWindow}, false},
		{"a counter, which has no ids of the stretch before", Rule{Name: "r", Per: PerDeviceType, Max: 1, Window: time.Minute, Algorithm: SlidingCounter}, false},
	} {
		_, err := New(nil, []Rule{c.rule}, log)
		if (err == nil) != c.good || err != nil && !strings.Contains(err.Error(), "in Cassandra") {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	if _, err := New(nil, []Rule{deviceDay(1)}); err == nil {
		t.Error("without a log a rule of devices needs version 2")
	}
	if _, err := New(nil, []Rule{{Name: "u", Per: PerUser, Max: 1, Window: 2 * time.Hour, Algorithm: SlidingCounter}}, log, WriteVersion2()); err != nil {
		t.Errorf("a rule of users: %v", err)
	}
}
