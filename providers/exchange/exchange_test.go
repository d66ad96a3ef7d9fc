package exchange

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// liveness ends a wait that hangs. It is no expectation: the machine may be
// busy with something else.
const liveness = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tongue is a codec whose deliveries say what becomes of them: the item's id
// is the path, and next the answers to Read, one after the other.
type tongue struct {
	next func(d *pipeline.Delivery, r *Draft) Next

	mu   sync.Mutex
	read map[string]int
}

func (c *tongue) Encode(d *pipeline.Delivery, r *Draft) (push.Result, bool) {
	if d.Item.ID == "refused" {
		return push.Result{Class: push.Refused, Reason: "ours"}, false
	}
	r.Path = append(append(r.Path, '/'), d.Item.ID...)
	return push.Result{}, true
}

func (c *tongue) Read(d *pipeline.Delivery, r *Draft) (push.Result, Next) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Answer.Status >= 500 {
		return push.Result{Class: push.Again, Scope: push.ScopeRoute}, Settled
	}
	c.read[d.Item.ID]++
	next := Settled
	if c.next != nil {
		next = c.next(d, r)
	}
	return push.Result{Class: push.Delivered, Certainty: push.Accepted}, next
}

func (c *tongue) Left(reason string, result push.Result, r *Draft) (push.Result, Next) {
	result.Reason = reason
	if reason == "repeat" && r.Repeats == 0 {
		return result, Repeat
	}
	return result, Settled
}

// rig is a sender on a pool to a server of its own.
type rig struct {
	*Sender
	codec *tongue
	pool  *h2.Pool
}

func newRig(t *testing.T, serve http.HandlerFunc, opt h2.Options) *rig {
	t.Helper()
	s := httptest.NewUnstartedServer(serve)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	opt.URL, opt.TLS = s.URL, s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	opt.TLS.RootCAs = roots
	if opt.Lanes == nil {
		opt.Lanes = []h2.Lane{{Name: "only", Weight: 1, Queue: 1000}}
	}
	pool, err := h2.NewPool(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		pool.Close(ctx)
	})
	codec := &tongue{read: map[string]int{}}
	return &rig{Sender: New(pool, codec), codec: codec, pool: pool}
}

// deliveries makes one per id, all of one assignment.
func deliveries(t *testing.T, ids ...string) ([]*pipeline.Delivery, *pipeline.Tracker) {
	t.Helper()
	tracker := pipeline.NewTracker(pipeline.TrackerOptions{Capacity: len(ids)})
	b := &pipeline.Batch{Items: make([]pipeline.Item, len(ids)), Tracker: tracker}
	for i, id := range ids {
		b.Items[i].ID, b.Items[i].Offset = id, int64(i)
	}
	if n := tracker.Admit(b); n != len(ids) {
		t.Fatalf("%d of %d admitted", n, len(ids))
	}
	ds := make([]*pipeline.Delivery, len(ids))
	for i := range ds {
		ds[i] = &pipeline.Delivery{Item: &b.Items[i]}
	}
	return ds, tracker
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	return ids
}

// book counts what comes back.
type book struct {
	t    *testing.T
	mu   sync.Mutex
	got  map[*pipeline.Delivery]bool
	want int
	all  chan struct{}
}

func newBook(t *testing.T, want int) *book {
	return &book{t: t, got: map[*pipeline.Delivery]bool{}, want: want, all: make(chan struct{})}
}

func (b *book) done(ds []*pipeline.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range ds {
		if b.got[d] {
			b.t.Errorf("%s ended twice", d.Item.ID)
		}
		if b.got[d] = true; len(b.got) == b.want {
			close(b.all)
		}
	}
}

func (b *book) wait(what string) {
	b.t.Helper()
	select {
	case <-b.all:
	case <-time.After(liveness):
		b.mu.Lock()
		defer b.mu.Unlock()
		b.t.Fatalf("%s: %d of %d deliveries came back", what, len(b.got), b.want)
	}
}

// What waits behind a slow provider comes back unsent when its partition
// leaves; what is out is waited for.
func TestLapsedComesBackUnsent(t *testing.T) {
	arrived, release := make(chan string, 10), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		arrived <- req.URL.Path
		<-release
	}, h2.Options{Connections: 1, StreamsPerConnection: 1})
	leaving, tracker := deliveries(t, numbered(100)...)
	staying, _ := deliveries(t, "stays")
	waiting, last := newBook(t, 99), newBook(t, 2)
	out := leaving[0]
	done := func(ds []*pipeline.Delivery) {
		for _, d := range ds {
			if d == out || d == staying[0] {
				last.done([]*pipeline.Delivery{d})
			} else {
				waiting.done([]*pipeline.Delivery{d})
			}
		}
	}
	for _, ds := range [][]*pipeline.Delivery{leaving, staying} {
		if n, err := r.Lane(0).Submit(t.Context(), ds, done); n != len(ds) || err != nil {
			t.Fatal(n, err)
		}
	}
	if path := <-arrived; path != "/0" {
		t.Fatalf("%s arrived first", path)
	}
	tracker.Fence()
	waiting.wait("the partition has left")
	for _, d := range leaving[1:] {
		if d.Result != (push.Result{}) {
			t.Fatalf("%s: %+v", d.Item.ID, d.Result)
		}
	}
	close(release)
	last.wait("the provider has answered")
	for _, d := range []*pipeline.Delivery{out, staying[0]} {
		if d.Result.Class != push.Delivered {
			t.Errorf("%s: %+v", d.Item.ID, d.Result)
		}
	}
	if path := <-arrived; path != "/stays" || len(arrived) > 0 {
		t.Errorf("%s was sent, and %d more", path, len(arrived))
	}
}

func TestWaysOn(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) {}, h2.Options{Connections: 3})
	var resume sync.WaitGroup
	ways := []Next{Repeat, RepeatElsewhere, Parked, Settled, SettledRetire}
	r.codec.next = func(d *pipeline.Delivery, draft *Draft) Next {
		way := ways[int(d.Item.Offset)%len(ways)]
		switch {
		case way == Settled || way == SettledRetire:
			return way
		case draft.Repeats >= 2:
			return Settled
		case way == Parked:
			draft.Park()
			resume.Go(draft.Resume)
		}
		return way
	}
	ds, _ := deliveries(t, numbered(4*len(ways))...)
	b := newBook(t, len(ds))
	if n, err := r.Lane(0).Submit(t.Context(), ds, b.done); n != len(ds) || err != nil {
		t.Fatal(n, err)
	}
	b.wait("every way on")
	resume.Wait()
	for i, d := range ds {
		want := 3 // sent, and twice again
		if way := ways[i%len(ways)]; way == Settled || way == SettledRetire {
			want = 1
		}
		if n := r.codec.read[d.Item.ID]; n != want || d.Result.Class != push.Delivered {
			t.Errorf("%d: read %d times instead of %d; %+v", i, n, want, d.Result)
		}
	}
	if d := r.pool.Stats().Dials; d < 2 {
		t.Errorf("%d connections, though some were not to be used again", d)
	}
}

// Submit says what it took; the rest is untouched, and what the codec refused
// among the taken has come back.
func TestSubmitStopsWithItsContext(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, func(http.ResponseWriter, *http.Request) { <-release }, h2.Options{
		Connections: 1, StreamsPerConnection: 1, Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 3}}})
	ids := []string{"0", "refused", "2", "3", "refused", "5", "6", "refused", "8", "refused"}
	for i := range ids {
		if ids[i] != "refused" {
			ids[i] = "n" + ids[i]
		}
	}
	tracker := pipeline.NewTracker(pipeline.TrackerOptions{Capacity: len(ids)})
	b := &pipeline.Batch{Items: make([]pipeline.Item, len(ids)), Tracker: tracker}
	ds := make([]*pipeline.Delivery, len(ids))
	for i, id := range ids {
		b.Items[i].ID = id
		ds[i] = &pipeline.Delivery{Item: &b.Items[i]}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var full sync.WaitGroup
	full.Go(func() { // then Submit waits
		for r.pool.Stats().Waiting < 3 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	})
	defer full.Wait()
	var mu sync.Mutex
	back := map[*pipeline.Delivery]int{}
	all := make(chan struct{}, len(ids))
	n, err := r.Lane(0).Submit(ctx, ds, func(got []*pipeline.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range got {
			back[d]++
			all <- struct{}{}
		}
	})
	if !errors.Is(err, context.Canceled) || n == 0 || n == len(ds) {
		t.Fatalf("took %d, %v", n, err)
	}
	close(release)
	for i := range n {
		select {
		case <-all:
		case <-time.After(liveness):
			t.Fatalf("%d of %d taken deliveries came back", i, n)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, d := range ds {
		want := push.Delivered
		if ids[i] == "refused" {
			want = push.Refused
		}
		switch {
		case i < n && (back[d] != 1 || d.Result.Class != want):
			t.Errorf("%d was taken: back %d times, %+v", i, back[d], d.Result)
		case i >= n && (back[d] != 0 || d.Result != push.Result{}):
			t.Errorf("%d was not taken: back %d times, %+v", i, back[d], d.Result)
		}
	}
}

// A codec may have a request sent again, changed, that a GOAWAY did not accept;
// never one that it may have.
func TestLeftBehindIsRepeated(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) {}, h2.Options{Connections: 1})
	for _, tc := range []struct {
		outcome h2.Outcome
		reason  string
		want    push.Result
	}{
		{h2.NotAccepted, "repeat", push.Result{Class: push.Delivered, Certainty: push.Accepted, Conn: 1}},
		{h2.NotAccepted, "other", push.Result{Class: push.Again, Scope: push.ScopeConnection, Reason: "other", Conn: 1, Ended: true}},
		{h2.Ambiguous, "repeat", push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: "repeat", Conn: 1, Ended: true}},
	} {
		ds, _ := deliveries(t, "one")
		draft := r.draft(ds[0])
		all := newBook(t, 1)
		// It goes through the pool once, so that it is of a group.
		answered := false
		group := h2.NewGroup(func(rs []*h2.Request) {
			if !answered {
				answered = true
				rs[0].Outcome, rs[0].Err = tc.outcome, &h2.GoAwayError{Reason: tc.reason}
			}
			r.finish(rs, all.done)
		})
		if _, err := r.pool.SubmitTo(t.Context(), 0, []*h2.Request{&draft.Request}, group); err != nil {
			t.Fatal(err)
		}
		all.wait("its end")
		if ds[0].Result != tc.want {
			t.Errorf("%v, %s: %+v, want %+v", tc.outcome, tc.reason, ds[0].Result, tc.want)
		}
	}
}

func TestUnanswered(t *testing.T) {
	again := func(c push.Certainty, why push.Reason) push.Result {
		return push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: c, Reason: string(why), Ended: why != push.Timeout}
	}
	for name, tc := range map[string]struct {
		r    h2.Request
		want push.Result
	}{
		"expired unsent":        {h2.Request{Outcome: h2.ExpiredUnsent}, push.Result{Class: push.Refused, Expired: true, Reason: string(push.PastExpiry)}},
		"malformed":             {h2.Request{Outcome: h2.NotAccepted, Err: h2.ErrMalformed}, push.Result{Class: push.Refused, Local: true, Reason: string(push.InvalidMessage)}},
		"lease lapsed":          {h2.Request{Outcome: h2.NotAccepted, Err: h2.ErrLeaseLapsed}, push.Result{}},
		"lapsed in the middle":  {h2.Request{Outcome: h2.Ambiguous, Err: h2.ErrLeaseLapsed}, again(push.Ambiguous, push.ConnectionLost)},
		"expired in the middle": {h2.Request{Outcome: h2.Ambiguous, Err: h2.ErrExpired}, again(push.Ambiguous, push.Timeout)},
		"not connected":         {h2.Request{Outcome: h2.NotAccepted, Err: h2.ErrNotConnected}, again(push.NotAccepted, push.NotConnected)},
		"over the header limit": {h2.Request{Outcome: h2.NotAccepted, Err: h2.ErrHeaderLimit}, again(push.NotAccepted, push.NotConnected)},
		"closed while waiting":  {h2.Request{Outcome: h2.NotAccepted, Err: h2.ErrClosed}, again(push.NotAccepted, push.NotConnected)},
		"closed while out":      {h2.Request{Outcome: h2.Ambiguous, Err: h2.ErrClosed}, again(push.Ambiguous, push.ConnectionLost)},
		"deadline while out":    {h2.Request{Outcome: h2.Ambiguous, Err: h2.ErrDeadline}, again(push.Ambiguous, push.Timeout)},
		"deadline in the queue": {h2.Request{Outcome: h2.NotAccepted, Err: h2.ErrDeadline}, again(push.NotAccepted, push.Timeout)},
		"connection lost":       {h2.Request{Outcome: h2.Ambiguous, Err: fmt.Errorf("x: %w", h2.ErrConnectionLost)}, again(push.Ambiguous, push.ConnectionLost)},
		"reset":                 {h2.Request{Outcome: h2.Ambiguous, Err: &h2.ResetError{}}, push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: string(push.ConnectionLost)}},
		"GOAWAY":                {h2.Request{Outcome: h2.NotAccepted, Err: &h2.GoAwayError{}}, again(push.NotAccepted, push.ConnectionLost)},
		"500, cut":              {h2.Request{Outcome: h2.Answered, Answer: h2.Answer{Status: 500, Broken: true}}, again(push.Ambiguous, push.ConnectionLost)},
		"400, cut":              {h2.Request{Outcome: h2.Answered, Answer: h2.Answer{Status: 400, Broken: true}}, again(push.NotAccepted, push.ConnectionLost)},
	} {
		if got := Unanswered(&tc.r); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
