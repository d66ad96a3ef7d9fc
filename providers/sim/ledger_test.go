package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// The ledger agrees with a plain map, in both modes, through several growths
// of its tables.
func TestLedgerArithmetic(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprintf("full=%v", full), func(t *testing.T) {
			l := newLedger(full)
			type pair struct{ id, device string }
			type counts struct{ accepted, refused int }
			want := map[pair]counts{}
			replies := []Reply{APNSAccepted, APNSAccepted, APNSInternalServerError, FCMAccepted, FCMUnregistered}
			r := rand.New(rand.NewPCG(1, 2))
			var accepted, refused, again uint64
			for range 60_000 {
				p := pair{fmt.Sprint("n", r.IntN(15_000)), fmt.Sprint("d", r.IntN(2))}
				reply := replies[r.IntN(len(replies))]
				l.observe([]byte(p.id), []byte(p.device), reply)
				c := want[p]
				if reply.Accepted() {
					if c.accepted++; c.accepted > 1 {
						again++
					}
					accepted++
				} else {
					c.refused++
					refused++
				}
				want[p] = c
			}
			for p, c := range want {
				if e, ok := l.Entry(p.id, p.device); !ok || e.Accepted != c.accepted || e.Refused != c.refused {
					t.Fatalf("%v: got %+v, want %+v", p, e, c)
				}
			}
			totals := l.Totals()
			if totals.Accepted != accepted || totals.Refused != refused || totals.Received != accepted+refused ||
				totals.Duplicates != again || totals.Entries != uint64(len(want)) || totals.WithoutID != 0 {
				t.Errorf("got %+v, want %d accepted, %d refused, %d again, %d entries", totals, accepted, refused, again, len(want))
			}
			seen := map[pair]counts{}
			n := 0
			l.Each(func(e Entry) bool {
				n++
				seen[pair{e.ID, e.Device}] = counts{e.Accepted, e.Refused}
				return true
			})
			if n != len(want) || full && !maps.Equal(seen, want) {
				t.Errorf("Each: %d entries, want %d", n, len(want))
			}
			if full && len(l.Notification("n7")) == 0 {
				t.Error("a notification is not found by its id")
			}
			l.Reset()
			if totals := l.Totals(); totals.Received != 0 || totals.Entries != 0 || l.Accepted("n1", "d1") != 0 {
				t.Errorf("after Reset: %+v", totals)
			}
		})
	}
}

func TestLedgerWithoutID(t *testing.T) {
	l := newLedger(true)
	l.observe(nil, nil, APNSAccepted)
	l.observe(nil, nil, OAuthGranted)
	l.observe(nil, nil, FCMValidated)
	got := l.Totals()
	if got.Received != 1 || got.Accepted != 1 || got.WithoutID != 1 || got.Entries != 0 || got.Providers["oauth"].Accepted != 1 || got.Providers["fcm"].Replies["validated"] != 1 {
		t.Errorf("got %+v, want one push, one access token and one validation", got)
	}
}

func TestTallySaturates(t *testing.T) {
	var c tally
	for range 5000 {
		c = c.add(APNSAccepted).add(FCMUnavailable)
	}
	for range 100 {
		c = c.drop()
	}
	c = c.retract(APNSAccepted) // of nobody knows how many
	if c.accepted() != 1023 || c.refused() != 511 || c.dropped() != 63 || c.last() != FCMUnavailable {
		t.Errorf("got %d, %d, %d, %s", c.accepted(), c.refused(), c.dropped(), c.last())
	}
}

// bytes is the memory of a table.
func (t *table) bytes() int {
	return cap(t.keys)*int(unsafe.Sizeof(t.keys[0])) + cap(t.counts)*int(unsafe.Sizeof(t.counts[0])) + int(unsafe.Sizeof(*t))
}

// In counting mode an entry takes at most 16 bytes, at ten million entries and
// at every number on the way there, however full the tables are just then. The
// ledger's tables are alike, so some of them stand for all, and the worst of
// each for the sum. (Under 300,000, the 64 slots behind each end still show.)
func TestLedgerMemory(t *testing.T) {
	const entries, first, tables = 10_000_000, 300_000, 6
	shard := int(unsafe.Sizeof(ledgerShard{}))
	most := 0.0
	for i := range uint64(tables) {
		var one table
		for n := 1; n <= entries/ledgerShards; n++ {
			slot := one.slot(mix(uint64(n), i))
			*slot = slot.add(APNSAccepted)
			if n >= first/ledgerShards {
				most = max(most, float64(one.bytes()+shard)/float64(n))
			}
		}
		if one.used != entries/ledgerShards {
			t.Errorf("%d entries, want %d", one.used, entries/ledgerShards)
		}
		t.Logf("%d entries: %.2f bytes each", one.used, float64(one.bytes()+shard)/float64(one.used))
	}
	if most > 16 {
		t.Errorf("up to %.2f bytes an entry, want at most 16", most)
	}
	if most < 12 {
		t.Errorf("%.2f bytes an entry is less than it holds: the account is wrong", most)
	}
}

// The same seed and the same notifications meet the same faults and latencies,
// in whatever order they come; another seed does not.
func TestFaultsAreReproducible(t *testing.T) {
	const n = 2000
	type fate struct {
		reply   Reply
		latency time.Duration
	}
	play := func(seed uint64, order []int) map[int]fate {
		s := newStand(t, func(o *Options) {
			o.Seed = seed
			o.Faults.APNS = Faults{Internal: 0.05, Unavailable: 0.1, TooMany: 0.05, Latency: 10 * time.Millisecond, Jitter: 20 * time.Millisecond}
		})
		req := s.push()
		got := map[int]fate{}
		for _, i := range order {
			req.Body = fmt.Appendf(nil, `{"aps":{"alert":"x"},"pf_id":"n%d"}`, i)
			ans := s.do(req)
			got[i] = fate{ans.Reply, ans.Latency}
		}
		return got
	}
	straight := rand.New(rand.NewPCG(3, 4)).Perm(n)
	first := play(7, straight)
	if second := play(7, rand.New(rand.NewPCG(5, 6)).Perm(n)); !maps.Equal(first, second) {
		t.Error("the same seed gave other faults in another order")
	}
	if other := play(8, straight); maps.Equal(first, other) {
		t.Error("another seed gave the same faults")
	}
	counts := map[Reply]int{}
	for i, f := range first {
		counts[f.reply]++
		if f.latency < 10*time.Millisecond || f.latency > 30*time.Millisecond {
			t.Fatalf("notification %d: latency %v, want 10 to 30 ms", i, f.latency)
		}
	}
	for reply, want := range map[Reply]int{APNSInternalServerError: 100, APNSServiceUnavailable: 200, APNSTooManyRequests: 100} {
		if got := counts[reply]; got < want*7/10 || got > want*13/10 {
			t.Errorf("%s: %d of %d, want about %d", reply, got, n, want)
		}
	}
}

// A notification that met a fault may get through at the next attempt.
func TestFaultsPass(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Faults.APNS.Unavailable = 0.5 })
	req := s.push()
	for range 64 {
		s.do(req)
	}
	e, _ := s.policy.ledger.Entry("n1", DeviceHash(APNS, goodToken))
	if e.Accepted == 0 || e.Refused == 0 || e.Accepted+e.Refused != 64 {
		t.Errorf("got %+v, want some of each", e)
	}
}

func TestFaultsValidate(t *testing.T) {
	for why, f := range map[string]Faults{
		"negative":           {Internal: -0.1},
		"over one":           {TooMany: 1.1},
		"together over one":  {Internal: 0.6, Unavailable: 0.6},
		"negative latency":   {Latency: -1},
		"not a number":       {BadGateway: nan()},
		"negative wait":      {RetryAfter: -time.Second},
		"negative variation": {Jitter: -1},
	} {
		if f.Validate() == nil {
			t.Errorf("%s: accepted", why)
		}
	}
	if err := (Faults{Internal: 0.5, Unavailable: 0.5}).Validate(); err != nil {
		t.Error(err)
	}
}

func nan() float64 { var zero float64; return zero / zero }

func TestDeviceMarks(t *testing.T) {
	d := newDevices(Patterns())
	clock := newClock(func() time.Time { return time.Unix(1_800_000_000, 0) })
	check := func(why string, p Provider, token, home string, want Reply) {
		t.Helper()
		if got := d.lookup(p, token, home, clock.Now()).Reply; got != want {
			t.Errorf("%s: got %s, want %s", why, got, want)
		}
	}
	check("unknown", APNS, "aa", "t", NoReply)
	d.Throttled(APNS, "AA", 2)
	check("first of two, in the other case", APNS, "aa", "t", APNSTooManyRequests)
	check("the same token elsewhere", FCM, "aa", "t", NoReply)
	check("second of two", APNS, "aa", "t", APNSTooManyRequests)
	check("after them", APNS, "aa", "t", NoReply)
	d.Set(FCM, "x", Mark{Reply: FCMInternal, Times: 1, Home: "p"})
	check("once", FCM, "x", "p", FCMInternal)
	check("then only at home", FCM, "x", "p", NoReply)
	check("then not elsewhere", FCM, "x", "q", FCMSenderIDMismatch)
	d.Clear(FCM, "x")
	check("cleared", FCM, "x", "q", NoReply)
	d.Bad(FCM, "x")
	check("bad", FCM, "x", "q", FCMInvalidToken)
	check("pattern", APNS, "DEADDEAD00", "t", APNSUnregistered)
	check("pattern of FCM", FCM, "deaddead:1", "p", FCMUnregistered)
	check("patterns are exact for FCM", FCM, "DEADDEAD:1", "p", NoReply)
}

// Many goroutines, over several connections, add up.
func TestConcurrentAnswers(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Faults.APNS.Unavailable = 0.2 })
	const workers, each = 8, 300
	conns := [2]*Conn{NewConn(), NewConn()}
	push, send := s.push(), s.send()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			var ans Answer
			for i := range each {
				req := *push
				if w%2 == 1 {
					req = *send
				}
				req.Conn = conns[i%2]
				if w%2 == 0 {
					req.Body = fmt.Appendf(nil, `{"aps":{"alert":"x"},"pf_id":"n%d"}`, i)
				}
				s.policy.Answer(&req, &ans)
				if i%50 == 0 {
					s.policy.devices.Throttled(APNS, fmt.Sprint(i), 1)
					s.policy.ledger.Totals()
				}
			}
		})
	}
	wg.Wait()
	got := s.policy.ledger.Totals()
	if got.Received != workers*each || got.Providers["fcm"].Accepted != workers/2*each || got.Entries != each+1 {
		t.Errorf("got %+v, want %d pushes, of %d entries", got, workers*each, each+1)
	}
}

func benchmarkAnswer(b *testing.B, req *Request, s *stand) {
	var ans Answer
	want := s.do(req).Reply
	if !want.Accepted() {
		b.Fatalf("got %s", want)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.policy.Answer(req, &ans)
	}
}

func BenchmarkAnswerAPNS(b *testing.B) {
	s := newStand(b, func(o *Options) { o.CountOnly = true })
	benchmarkAnswer(b, s.push(), s)
}

func BenchmarkAnswerFCM(b *testing.B) {
	s := newStand(b, func(o *Options) { o.CountOnly = true })
	benchmarkAnswer(b, s.send(), s)
}

func BenchmarkAnswerRaw(b *testing.B) {
	s := newStand(b, func(o *Options) { o.CountOnly, o.Raw = true, true })
	benchmarkAnswer(b, s.push(), s)
}
