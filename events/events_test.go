package events_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

var startTime = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func readEvent(t testing.TB, record []byte) events.Event {
	t.Helper()
	if len(record) > events.MaxRecord {
		t.Fatalf("a record of %d bytes", len(record))
	}
	var e events.Event
	d := json.NewDecoder(bytes.NewReader(record))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%v in %.300s", err, record)
	}
	return e
}

func readEvents(t testing.TB, records [][]byte) (all events.Event) {
	t.Helper()
	for _, r := range records {
		e := readEvent(t, r)
		all.Counts = append(all.Counts, e.Counts...)
		all.Failures = append(all.Failures, e.Failures...)
	}
	return all
}

func eventItem(id, app, typ string) *pipeline.Item {
	return &pipeline.Item{Message: push.Message{ID: id, App: app, Type: typ, SenderID: "orders", UserID: "secret-user",
		Title: "secret title", Body: "secret body", Device: push.Target{Token: "secret-token"}}}
}

func TestEvents(t *testing.T) {
	e := events.New("worker-1", startTime)
	g := e.Group("critical")
	a, b := eventItem("id-a", "shop", "order"), eventItem("id-b", "shop", "promo")
	at := startTime.Add(time.Second)
	row := func(it *pipeline.Item, device string, p push.Platform, s push.State, reason string) {
		g.Add(it, &push.Row{ID: it.ID, Device: device, Step: 2, State: s, At: at, Platform: p, ProviderID: "", Reason: reason})
	}
	row(a, "d1", push.APNS, push.StateDelivered, "")
	row(a, "d2", push.APNS, push.StateDelivered, "")
	row(a, "d3", push.FCM, push.StateDelivered, "")
	row(a, "d4", push.FCM, push.StateFailed, "UNREGISTERED")
	row(a, "d5", push.APNS, push.StateDelivered, "")
	row(b, "", 0, push.StateSuppressed, "limited:three_a_day")
	row(b, "", 0, push.StateHeld, "limit_waits:sender_an_hour")
	row(b, "", 0, push.StateDeadLettered, "missing_field:data.x")
	row(b, "", 0, push.StateExpired, "past_expires_at")
	row(b, "d6", push.FCM, push.StateRetrying, "UNAVAILABLE")
	row(b, "d7", push.FCM, push.StateHeld, "route_paused")
	row(b, "d8", push.FCM, push.StateUnknown, "timeout")
	row(b, "", 0, push.StateShed, "overload")
	g.Duplicate(b)

	if rs := e.Take(at); rs != nil {
		t.Errorf("told before Count, when the rows are durable: %s", rs)
	}
	g.Count(at)
	e2 := e.Group("critical") // a second group of the same kind adds up
	e2.Add(a, &push.Row{ID: "id-a", State: push.StateDelivered, Platform: push.APNS})
	e2.Count(at)
	taken := e.Take(at.Add(time.Second))
	if len(taken) != 2 {
		t.Fatalf("%d records, want one of failures and one of counts", len(taken))
	}
	failures := taken[:1]
	f := readEvent(t, failures[0])
	if f.Version != 1 || f.Source != "worker-1" || f.Number != 1 || !f.At.Equal(at) || !f.From.IsZero() || len(f.Counts) > 0 {
		t.Errorf("head of the failures: %+v", f)
	}
	want := []events.Failure{
		{ID: "id-a", Lane: "critical", App: "shop", Type: "order", Sender: "orders", Device: "d4", Provider: "fcm", State: "FAILED", Reason: "UNREGISTERED", Step: 2, At: at},
		{ID: "id-b", Lane: "critical", App: "shop", Type: "promo", Sender: "orders", State: "DEAD_LETTERED", Reason: "missing_field:data.x", Step: 2, At: at},
		{ID: "id-b", Lane: "critical", App: "shop", Type: "promo", Sender: "orders", State: "EXPIRED", Reason: "past_expires_at", Step: 2, At: at},
		{ID: "id-b", Lane: "critical", App: "shop", Type: "promo", Sender: "orders", Device: "d8", Provider: "fcm", State: "UNKNOWN", Reason: "timeout", Step: 2, At: at},
		{ID: "id-b", Lane: "critical", App: "shop", Type: "promo", Sender: "orders", State: "SHED", Reason: "overload", Step: 2, At: at},
	}
	if !slices.Equal(f.Failures, want) {
		t.Errorf("failures\n%+v\nwant\n%+v", f.Failures, want)
	}

	c := readEvent(t, taken[1])
	if c.Number != 2 || !c.From.Equal(at) || !c.At.Equal(at.Add(time.Second)) || len(c.Failures) > 0 {
		t.Errorf("head of the counts: %+v", c)
	}
	var lines []string
	for _, n := range c.Counts {
		lines = append(lines, fmt.Sprintf("%s/%s/%s/%s/%s/%s %d", n.Lane, n.App, n.Type, n.Provider, n.State, n.Reason, n.N))
	}
	wantLines := []string{
		"critical/shop/order/apns/DELIVERED/ 4",
		"critical/shop/order/fcm/DELIVERED/ 1",
		"critical/shop/order/fcm/FAILED/UNREGISTERED 1",
		"critical/shop/promo//DEAD_LETTERED/missing_field 1",
		"critical/shop/promo//DUPLICATE/ 1",
		"critical/shop/promo//EXPIRED/past_expires_at 1",
		"critical/shop/promo//HELD/limit_waits:sender_an_hour 1",
		"critical/shop/promo//SHED/overload 1",
		"critical/shop/promo//SUPPRESSED/limited:three_a_day 1",
		"critical/shop/promo/fcm/HELD/route_paused 1",
		"critical/shop/promo/fcm/RETRYING/UNAVAILABLE 1",
		"critical/shop/promo/fcm/UNKNOWN/timeout 1",
	}
	if !slices.Equal(lines, wantLines) {
		t.Errorf("counts\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(wantLines, "\n"))
	}
	if text := string(taken[0]) + string(taken[1]); strings.Contains(text, "secret") {
		t.Errorf("a record tells what it must not: %s", text)
	}
	if rs := e.Take(at); rs != nil {
		t.Errorf("counted twice: %s", rs)
	}
}

// Producers may write any type: a lane has 200, and those it does not use any
// more make room.
func TestEventsBoundNames(t *testing.T) {
	e := events.New("w", startTime)
	now := startTime
	count := func(lane, app, typ, reason string) {
		g := e.Group(lane)
		g.Add(eventItem("id", app, typ), &push.Row{State: push.StateRetrying, Reason: reason})
		g.Count(now)
	}
	types := func() (kinds map[string]int64, total int64) {
		kinds = map[string]int64{}
		for _, c := range readEvents(t, e.Take(now)).Counts {
			kinds[c.Lane+"/"+c.Type] += c.N
			total += c.N
		}
		return kinds, total
	}
	for i := range 1000 {
		count("a", "shop", fmt.Sprint("type-", i), "")
	}
	count("b", "shop", "type-999", "")
	kinds, total := types()
	if len(kinds) != 202 || kinds["a/other"] != 800 || kinds["b/type-999"] != 1 || total != 1001 {
		t.Errorf("%d types, %d of lane a's are other ones, %d in all", len(kinds), kinds["a/other"], total)
	}
	for range 11 { // only type-7 goes on
		now = now.Add(time.Minute)
		count("a", "shop", "type-7", "")
		types()
	}
	for i := range 300 {
		count("a", "shop", fmt.Sprint("new-", i), "")
	}
	count("a", "shop", "type-7", "")
	if kinds, _ = types(); kinds["a/new-198"] != 1 || kinds["a/other"] != 101 || kinds["a/type-7"] != 1 {
		t.Errorf("after 11 minutes: %v", kinds)
	}

	for i := range 500 {
		count("a", fmt.Sprint("app-", i), "type-7", fmt.Sprint("Reason", i))
	}
	apps, reasons := map[string]bool{}, map[string]bool{}
	for _, c := range readEvents(t, e.Take(now)).Counts {
		apps[c.App], reasons[c.Reason] = true, true
	}
	if len(apps) > 201 || len(reasons) > 201 {
		t.Errorf("%d apps and %d reasons are told apart", len(apps), len(reasons))
	}
}

// However many combinations there are, memory and records stay bounded, and
// nothing is left out of the sum.
func TestEventsBoundCounts(t *testing.T) {
	e := events.New("w", startTime)
	total := int64(0)
	for app := range 150 {
		g := e.Group("a")
		for typ := range 190 {
			g.Add(eventItem("id", fmt.Sprint("app-", app), strings.Repeat("\x01", 60)+fmt.Sprint(typ)), &push.Row{State: push.StateDelivered})
			total++
		}
		g.Count(startTime)
	}
	records := e.Take(startTime)
	counts := readEvents(t, records).Counts
	if len(records) < 2 || len(counts) > 20_001 {
		t.Errorf("%d counts in %d records", len(counts), len(records))
	}
	for _, c := range counts {
		total -= c.N
	}
	if total != 0 {
		t.Errorf("%d are missing in the counts", total)
	}
}

// Failures of a large group go into several records, numbered without a gap,
// each failure once, the largest ones too.
func TestEventsPackFailures(t *testing.T) {
	e := events.New("w", startTime)
	g := e.Group("a")
	const n = 3000
	for i := range n {
		it := eventItem(fmt.Sprintf("id-%d", i), strings.Repeat("\x00", 128), strings.Repeat("\x00", 64))
		it.SenderID = strings.Repeat("\xff", 128)
		g.Add(it, &push.Row{ID: it.ID, State: push.StateFailed, Reason: "UNREGISTERED", At: startTime})
	}
	g.Count(startTime)
	records := e.Take(startTime)
	records = records[:len(records)-1] // the last one has the counts
	for i, r := range records {
		if e := readEvent(t, r); e.Number != int64(i)+1 {
			t.Errorf("record %d has the number %d", i, e.Number)
		}
		if i < len(records)-1 && len(r) < events.MaxRecord*9/10 {
			t.Errorf("record %d has only %d bytes", i, len(r))
		}
	}
	got := readEvents(t, records).Failures
	if len(records) < 2 || len(got) != n {
		t.Fatalf("%d failures in %d records", len(got), len(records))
	}
	for i, f := range got {
		if f.ID != fmt.Sprintf("id-%d", i) {
			t.Fatalf("failure %d is %s", i, f.ID)
		}
	}
	e.Group("a").Count(startTime)
	if empty := e.Take(startTime); empty != nil {
		t.Errorf("a group without failures makes records: %s", empty)
	}
}

// What the topic does not take, and what nobody takes, is a gap that is told
// when it goes on: its source, and from when to when.
func TestEventsTellTheirGaps(t *testing.T) {
	e := events.New("w", startTime)
	fail := func(n int, at time.Time) {
		g := e.Group("a")
		for i := range n {
			it := eventItem(fmt.Sprintf("id-%d", i), strings.Repeat("a", 128), strings.Repeat("t", 64))
			g.Add(it, &push.Row{ID: it.ID, State: push.StateFailed, Reason: "UNREGISTERED", At: at})
		}
		g.Count(at)
	}
	gapOf := func(records [][]byte) (g *events.Gap) {
		for _, r := range records {
			if e := readEvent(t, r); e.Gap != nil {
				if g != nil {
					t.Error("two gaps at once")
				}
				g = e.Gap
			}
		}
		return g
	}
	fail(3, startTime)
	if g := gapOf(e.Take(startTime.Add(time.Second))); g != nil {
		t.Errorf("a gap where there is none: %+v", g)
	}
	e.Missed(startTime, startTime.Add(time.Second))
	e.Missed(startTime.Add(time.Second), startTime.Add(2*time.Second))
	if g := gapOf(e.Take(startTime.Add(3 * time.Second))); g == nil || !g.From.Equal(startTime) || !g.To.Equal(startTime.Add(2*time.Second)) {
		t.Errorf("after two rounds that were refused: %+v", g)
	}
	if e.Take(startTime.Add(3*time.Second)) != nil {
		t.Error("the gap is told twice")
	}
	const each, rounds = 2000, 40 // 80,000 failures of over 400 bytes
	for i := range rounds {
		fail(each, startTime.Add(time.Duration(10+i)*time.Second))
	}
	select {
	case <-e.Soon():
	default:
		t.Error("nobody is asked to take 16 MiB of failures")
	}
	records := e.Take(startTime.Add(time.Minute))
	size := 0
	for _, r := range records {
		size += len(r)
	}
	all := readEvents(t, records)
	g := gapOf(records)
	if told := len(all.Failures); size > 17<<20 || told == 0 || told == each*rounds || g == nil {
		t.Fatalf("%d of %d failures told in %d bytes, gap %+v", told, each*rounds, size, g)
	}
	if last := all.Failures[len(all.Failures)-1].At; g.From.Before(last) || !g.To.Equal(startTime.Add((10+rounds-1)*time.Second)) {
		t.Errorf("the gap is %+v, the last failure told is of %v", g, last)
	}
	if n := all.Counts[0].N; n != each*rounds {
		t.Errorf("counted %d, want all %d", n, each*rounds)
	}
}

// Counts must not keep the memory of the records that items are cut from.
func TestEventsCopyNames(t *testing.T) {
	e := events.New("w", startTime)
	value := []byte(`{"id":"i","app":"shop","user_id":"u","type":"order"}`)
	it := &pipeline.Item{}
	if d := decode.Message(value, &it.Message); d != nil {
		t.Fatal(d)
	}
	g := e.Group("a")
	g.Add(it, &push.Row{State: push.StateDelivered})
	g.Count(startTime)
	copy(value, bytes.Repeat([]byte("x"), len(value)))
	c := readEvents(t, e.Take(startTime)).Counts
	if len(c) != 1 || c[0].App != "shop" || c[0].Type != "order" {
		t.Errorf("after the record's memory was reused: %+v", c)
	}
}

func TestEventsShared(t *testing.T) {
	e := events.New("w", startTime)
	var lanes sync.WaitGroup
	var mu sync.Mutex
	total, numbers := int64(0), map[int64]bool{}
	take := func() {
		for _, r := range e.Take(startTime) {
			ev := readEvent(t, r)
			mu.Lock()
			if numbers[ev.Number] {
				t.Errorf("two records have the number %d", ev.Number)
			}
			numbers[ev.Number] = true
			for _, c := range ev.Counts {
				total += c.N
			}
			mu.Unlock()
		}
	}
	for lane := range 4 {
		lanes.Go(func() {
			for range 200 {
				g := e.Group(fmt.Sprint("lane-", lane))
				g.Add(eventItem("id", "shop", "order"), &push.Row{State: push.StateDelivered})
				g.Count(startTime)
				take()
			}
		})
	}
	lanes.Wait()
	take()
	if total != 800 {
		t.Errorf("%d counted, want 800", total)
	}
}

// docs/events.md shows records that can be read, and names every field.
func TestEventsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) != 8 {
		t.Fatalf("%d examples", len(examples))
	}
	used := map[string]bool{}
	for _, ex := range examples {
		e := readEvent(t, ex[1])
		if len(e.Counts)+len(e.Failures)+len(e.Rates)+len(e.Quarantines) == 0 && e.Gap == nil && e.State == nil && e.Ranges == nil && e.Limits == nil || e.Version != events.Version {
			t.Errorf("example %s", ex[1])
		}
		for _, k := range regexp.MustCompile(`"(\w+)":`).FindAllSubmatch(ex[1], -1) {
			used[string(k[1])] = true
		}
	}
	state := string(text[bytes.Index(text, []byte("## State")):])
	for _, of := range []any{events.State{}, events.LaneState{}, events.RouteState{}, events.AnswerState{}, events.StallState{}} {
		typ := reflect.TypeOf(of)
		for i := range typ.NumField() {
			if name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); !used[name] && !strings.Contains(state, "`"+name+"`") {
				t.Errorf("neither the example of a state nor the table of its fields names %s", name)
			}
		}
	}
	fields := string(text[bytes.Index(text, []byte("## Fields")):])
	for _, of := range []any{events.Event{}, events.Count{}, events.Failure{}, events.Rate{}, events.Gap{}, events.Ranges{}, events.RangeKind{}, events.Place{}, events.Limits{}, events.SenderLimit{}, events.LimitedUsers{}} {
		typ := reflect.TypeOf(of)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !used[name] {
				t.Errorf("no example shows %s", name)
			}
			if !strings.Contains(fields, "`"+name+"`") && name != "counts" && name != "failures" && name != "rates" && name != "gap" && name != "state" && name != "limits" {
				t.Errorf("the table of fields does not name %s", name)
			}
		}
	}
}

// Changes of rates are records of their own, in order and told once; what comes beyond
// any fleet's number of them is a gap.
func TestChangesOfRates(t *testing.T) {
	e := events.New("w", startTime)
	want := []events.Rate{
		{Name: "fcm/shop", From: 10_000, To: 8000, Cause: "over_quota", At: startTime},
		{Name: "apns/T/com.example.shop/production", To: 800, Cause: "failing", At: startTime.Add(time.Second)},
	}
	for _, r := range want {
		e.Rate(r)
	}
	records := e.Take(startTime.Add(2 * time.Second))
	if len(records) != 1 {
		t.Fatalf("%d records, want one", len(records))
	}
	if got := readEvent(t, records[0]); !slices.Equal(got.Rates, want) || got.Number != 1 || got.Version != events.Version {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if again := e.Take(startTime.Add(3 * time.Second)); again != nil {
		t.Errorf("told again: %s", again)
	}
	for range 1001 {
		e.Rate(want[0])
	}
	if records = e.Take(startTime.Add(4 * time.Second)); readEvent(t, records[0]).Gap == nil {
		t.Errorf("no gap is told of too many: %.200s", records[0])
	}
}

func BenchmarkEvents(b *testing.B) {
	e := events.New("w", startTime)
	items := make([]*pipeline.Item, 2000)
	rows := make([]push.Row, len(items))
	for i := range items {
		items[i] = eventItem(fmt.Sprint(i), "shop", fmt.Sprint("type-", i%20))
		rows[i] = push.Row{State: push.StateDelivered, Platform: push.Platform(1 + i%2)}
	}
	b.ReportAllocs()
	for b.Loop() {
		g := e.Group("a")
		for i := range items {
			g.Add(items[i], &rows[i])
		}
		g.Count(startTime)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(items)), "ns/row")
}
