package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
)

// membership is members by the parts that they are in.
type membership struct {
	mu    sync.Mutex
	parts map[int][]fanout.Member // guarded by mu; in order
	read  int                     // guarded by mu; how many were handed out
	takes time.Duration           // to read a page
	err   error                   // guarded by mu
}

// Page implements fanout.Audience.
func (a *membership) Page(ctx context.Context, _ *fanout.Job, part int, after string, limit int) ([]fanout.Member, error) {
	if a.takes > 0 {
		select {
		case <-time.After(a.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.parts[part]
	first, found := slices.BinarySearchFunc(list, after, func(m fanout.Member, after string) int { return strings.Compare(m.User, after) })
	if found {
		first++
	}
	list = list[first:min(first+limit, len(list))]
	a.read += len(list)
	return list, a.err
}

// add makes n more members of a part.
func (a *membership) add(part, n int, like fanout.Member) {
	for range n {
		like.User = fmt.Sprintf("%d-%06d", part, len(a.parts[part]))
		a.parts[part] = append(a.parts[part], like)
	}
}

// countWorld has a message to the topic snow that has begun, and an audience of nobody.
func countWorld(t *testing.T) (w *world, notes *reports, to *membership, receipt string, j *fanout.Job) {
	t.Helper()
	w, notes = fanoutWorld(t)
	to = &membership{parts: map[int][]fanout.Member{}}
	w.gateway.o.Fanouts.Audience = to
	receipt = w.toSnow(`{"title": "Snow"}`).string("receipt")
	j, _ = w.lastJob()
	notes.begun(t, j)
	return w, notes, to, receipt, j
}

// counted asks what became of a message's receivers.
func (w *world) counted(id, key string) *reply {
	w.t.Helper()
	return w.do(request{method: "GET", path: "/v1/messages/" + url.PathEscape(id) + "/counts", key: key})
}

// sum is an answer in short.
func sum(a *reply) string {
	return fmt.Sprint(a.status, " ", a.json["counted"], " ", a.json["whole"], " ", a.json["states"])
}

func (r *reports) ended(t *testing.T, j *fanout.Job, c fanout.Counts, parts ...int) {
	t.Helper()
	for _, part := range parts {
		if err := r.End(t.Context(), j.Message, part, &c); err != nil {
			t.Fatal(err)
		}
	}
}

// anew lets the next question count anew.
func (w *world) anew() { w.gateway.counts = newRenewed[uuid.UUID, StateCounts](countedAge) }

func TestCounts(t *testing.T) {
	w, notes, to, receipt, j := countWorld(t)
	before, after := j.Accepted.Add(-time.Hour), j.Accepted.Add(time.Minute)
	to.parts[3] = []fanout.Member{
		{User: "a-delivered"}, {User: "b-delivered", Since: before}, {User: "c-limited"}, {User: "d-open"}, {User: "e-waits"}, {User: "f-another's"},
		{User: "g-pulls", Pull: true}, {User: "h-late", Since: after}, {User: "i-left", Left: true}, {User: "j-left-later", Left: true}, {User: "k-inbox"},
	}
	to.parts[4] = []fanout.Member{{User: "l-open-part"}}
	set := func(user, of string, state push.State) {
		id := fanout.ID(j.Message, user)
		w.set(func() {
			w.rows[id] = append(w.rows[id], push.Row{ID: id, Device: "d" + fmt.Sprint(len(w.rows[id])), State: state, At: time.Now(), UserHash: push.UserHash(of)})
		})
	}
	set("a-delivered", "a-delivered", push.StateDelivered)
	set("b-delivered", "b-delivered", push.StateFailed)
	set("b-delivered", "b-delivered", push.StateDelivered)
	set("c-limited", "c-limited", push.StateSuppressed)
	set("d-open", "d-open", push.StateRetrying)
	set("f-another's", "somebody", push.StateDelivered)
	set("g-pulls", "g-pulls", push.StateDelivered)
	set("h-late", "h-late", push.StateDelivered)
	set("j-left-later", "j-left-later", push.StateDelivered)
	set("k-inbox", "k-inbox", push.StateInbox)
	set("l-open-part", "l-open-part", push.StateDelivered)

	if got := sum(w.counted(receipt, keyOrders)); got != "200 0 true map[]" {
		t.Errorf("no part has ended: %s", got)
	}
	notes.ended(t, j, fanout.Counts{Emitted: 8}, 3)
	if got := sum(w.counted(receipt, keyOrders)); got != "200 0 true map[]" {
		t.Errorf("a second later it is counted anew: %s", got)
	}
	w.anew()
	a := w.counted(receipt, keyOrders)
	if got := sum(a); got != "200 8 true map[DELIVERED:3 INBOX:1 PENDING:2 SENDING:1 SUPPRESSED:1]" {
		t.Errorf("%s", got)
	}
	if chunks := a.json["chunks"].(map[string]any); a.json["emitted"] != 8.0 || chunks["done"] != 1.0 || chunks["all"] != float64(j.To.Parts) {
		t.Errorf("how far it is: %s", a.text)
	}
	// An admin knows it by another name; it is the same count.
	if b := w.counted(j.Message.String(), keySupport); sum(b) != sum(a) || b.string("id") != j.Message.String() || b.string("at") != a.string("at") {
		t.Errorf("by its id: %s", b.text)
	}

	// Who has no state when a message is cancelled may have no notification.
	if err := notes.Order(t.Context(), j.Message, fanout.Cancelled, time.Now()); err != nil {
		t.Fatal(err)
	}
	w.anew()
	if got := sum(w.counted(receipt, keyOrders)); got != "200 8 true map[DELIVERED:3 INBOX:1 SENDING:1 SUPPRESSED:1 UNKNOWN:2]" {
		t.Errorf("cancelled: %s", got)
	}
}

// Of some for whom it had expired nobody says who they are, and what has expired since may
// never have a state.
func TestCountsOfWhatExpires(t *testing.T) {
	w, notes, to, receipt, j := countWorld(t)
	to.add(0, 3, fanout.Member{})
	notes.ended(t, j, fanout.Counts{Emitted: 2, Skipped: [5]int64{fanout.SkipExpired: 1}}, 0)
	if got := sum(w.counted(receipt, keyOrders)); got != "200 3 true map[UNKNOWN:3]" {
		t.Error(got)
	}
	past := &fanout.Progress{Job: &fanout.Job{Expires: time.Now()}}
	if got := stateOf(past, nil, past.Job.Expires); got != "UNKNOWN" {
		t.Errorf("expired since: %s", got)
	}
}

// Before it has begun there is nobody; and when that was too long ago, nobody knows.
func TestCountsOfWhatHasNotBegun(t *testing.T) {
	w, _ := fanoutWorld(t)
	w.gateway.o.Fanouts.Audience = &membership{}
	receipt := w.toSnow(`{"title": "Snow"}`).string("receipt")
	a := w.counted(receipt, keyOrders)
	if chunks := a.json["chunks"].(map[string]any); sum(a) != "200 0 true map[]" || chunks["all"] != 0.0 {
		t.Error(a.text)
	}
	w.anew()
	w.gateway.o.Times.Kept = 0
	if a := w.counted(receipt, keyOrders); a.status != http.StatusGone || a.code() != "gone" {
		t.Errorf("long ago: %d %s", a.status, a.text)
	}
}

// What has begun is known for a while longer than the rows of its notifications: their absence
// says nothing then.
func TestCountsOfWhatIsKeptNoLonger(t *testing.T) {
	w, notes, to, receipt, j := countWorld(t)
	to.add(0, 1, fanout.Member{})
	notes.ended(t, j, fanout.Counts{Emitted: 1}, 0)
	w.gateway.o.Times.Kept = 0
	for id, key := range map[string]string{receipt: keyOrders, j.Message.String(): keySupport} {
		if a := w.counted(id, key); a.status != http.StatusGone || a.code() != "gone" {
			t.Errorf("%s: %d %s", id, a.status, a.text)
		}
	}
}

// What became of a message is told for just as long as it is kept, by its note or its receipt.
func TestForHowLongItIsTold(t *testing.T) {
	g, now := &Gateway{}, clock()
	g.o.Times.Kept = time.Hour
	for age, gone := range map[time.Duration]bool{0: false, time.Hour: false, time.Hour + time.Millisecond: true} {
		at := now.Add(-age)
		for name, ask := range map[string]func() (time.Time, *Problem){
			"note": func() (time.Time, *Problem) {
				return g.acceptedAt(&fanout.Progress{Job: &fanout.Job{Accepted: at}}, nil, now, "x")
			},
			"receipt": func() (time.Time, *Problem) { return g.acceptedAt(nil, &claim{at: at}, now, "x") },
			"both": func() (time.Time, *Problem) {
				return g.acceptedAt(&fanout.Progress{Job: &fanout.Job{Accepted: at}}, &claim{at: now}, now, "x")
			},
		} {
			if got, problem := ask(); !got.Equal(at) || (problem != nil) != gone || gone && problem.Code != codeGone {
				t.Errorf("%s of %v ago: %v, %v", name, age, got, problem)
			}
		}
	}
}

// Of many a sample is counted, and no more than that is read.
func TestCountsOfASample(t *testing.T) {
	for _, tt := range []struct {
		why      string
		sizes    []int
		like     fanout.Member
		whole    bool
		counted  float64
		mostRead int
	}{
		{"as many as are counted", []int{500, 500}, fanout.Member{}, true, 1000, 1000},
		{"one more", []int{1001}, fanout.Member{}, false, 1000, 1250},
		{"many parts", slices.Repeat([]int{100}, 64), fanout.Member{}, false, 1000, 1100},
		{"a great part", []int{100_000}, fanout.Member{}, false, 1000, 1250},
		{"nobody of many is a receiver", []int{100_000}, fanout.Member{Pull: true}, false, 0, 10_250},
	} {
		t.Run(tt.why, func(t *testing.T) {
			w, notes, to, receipt, j := countWorld(t)
			for part, n := range tt.sizes {
				to.add(part, n, tt.like)
				notes.ended(t, j, fanout.Counts{Emitted: int64(n)}, part)
			}
			a := w.counted(receipt, keyOrders)
			if a.status != http.StatusOK || a.json["whole"] != tt.whole || a.json["counted"] != tt.counted || to.read > tt.mostRead {
				t.Errorf("%s, %d members read", a.text, to.read)
			}
		})
	}
}

// Parts are many, up to 1,024, however few are in them: all are counted in time, also by a store
// that takes its own.
func TestCountsOfManySmallParts(t *testing.T) {
	for name, in := range map[string]int{"nobody in most of them": 1, "some in each": 8} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, notes, to, receipt, j := countWorld(t)
				want := 0
				for part := range j.To.Parts {
					if part%8 < in {
						to.add(part, 3, fanout.Member{})
						want += 3
					}
					notes.ended(t, j, fanout.Counts{Emitted: 3}, part)
				}
				to.takes = 30 * time.Millisecond // for a page, and there are 256 parts
				if got := sum(w.counted(receipt, keyOrders)); got != fmt.Sprintf("200 %d true map[PENDING:%[1]d]", want) {
					t.Errorf("%s, want %d", got, want)
				}
			})
		})
	}
}

// Samples of several messages are not always of the same users.
func TestDrawn(t *testing.T) {
	parts, first := []int{2, 5, 9}, map[int]bool{}
	for range 64 {
		got := drawn(uuid.New(), parts)
		first[got[0]] = true
		if slices.Sort(got); !slices.Equal(got, parts) {
			t.Fatalf("%v", got)
		}
	}
	if len(first) != 3 {
		t.Errorf("the first is always one of %v", first)
	}
	if drawn(uuid.New(), nil) != nil {
		t.Error("parts of none")
	}
}

func TestWhatCannotBeCounted(t *testing.T) {
	w, notes, to, receipt, j := countWorld(t)
	to.add(0, 1, fanout.Member{})
	notes.ended(t, j, fanout.Counts{Emitted: 1}, 0)
	_, single := w.accepted()
	for _, tt := range []struct {
		why, id, key string
		status       int
		code         string
	}{
		{"without the right read", receipt, keyLogins, http.StatusForbidden, "forbidden"},
		{"another sender's receipt", receipt, keyReader, http.StatusNotFound, "no_receipt"},
		{"a bare id of another sender's", j.Message.String(), keyReader, http.StatusNotFound, "no_receipt"},
		{"a message to one user", single, keyOrders, http.StatusNotFound, "no_receipt"},
		{"an id of nothing", uuid.NewString(), keySupport, http.StatusNotFound, "no_receipt"},
		{"no id at all", "x", keySupport, http.StatusNotFound, "no_receipt"},
	} {
		if a := w.counted(tt.id, tt.key); a.status != tt.status || a.code() != tt.code {
			t.Errorf("%s: %d %s", tt.why, a.status, a.text)
		}
	}
	away := func(why string) {
		t.Helper()
		if a := w.counted(receipt, keyOrders); a.status != http.StatusServiceUnavailable || a.code() != "status_away" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", why, a.status, a.text)
		}
	}
	w.set(func() { w.rowsErr = errAway })
	away("rows")
	w.set(func() { w.rowsErr = nil })
	to.err = errAway
	away("the audience")
	to.err = fanout.ErrNoAudience
	if a := w.counted(receipt, keyOrders); a.status != http.StatusNotImplemented {
		t.Errorf("an audience that this gateway does not know: %d %s", a.status, a.text)
	}
	to.err = nil
	notes.set(errAway)
	away("the notes")
	notes.set(nil)
	if got := sum(w.counted(receipt, keyOrders)); got != "200 1 true map[PENDING:1]" {
		t.Errorf("after that: %s", got)
	}
	w.gateway.o.Fanouts.Audience = nil
	if a := w.counted(receipt, keyOrders); a.status != http.StatusNotImplemented {
		t.Errorf("not configured: %d %s", a.status, a.text)
	}
}

// Counts of many messages do not take ever more memory, and a count may be renewed.
func TestCountsAreFew(t *testing.T) {
	c := newRenewed[uuid.UUID, StateCounts](countedAge)
	for range 3 * countsKept {
		c.find(uuid.New())
	}
	if n := len(c.latest); n > countsKept {
		t.Errorf("%d are kept", n)
	}
	w, notes, to, receipt, j := countWorld(t)
	to.add(0, 1, fanout.Member{})
	w.counted(receipt, keyOrders)
	notes.ended(t, j, fanout.Counts{Emitted: 1}, 0)
	w.gateway.o.Times.Status = time.Second
	for range countsAtOnce + 1 {
		w.gateway.counts.find(j.Message).made = time.Now().Add(-countedAge)
		if got := sum(w.counted(receipt, keyOrders)); got != "200 1 true map[PENDING:1]" {
			t.Fatalf("after %v: %s", countedAge, got)
		}
	}
}
