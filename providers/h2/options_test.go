package h2

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// Options that cannot work are refused at once, whichever they are.
func TestOptionsThatCannotWork(t *testing.T) {
	good := []Lane{{"a", 1, 1}}
	for why, opt := range map[string]Options{
		"no url":       {Lanes: good},
		"plain http":   {URL: "http://push.example", Lanes: good},
		"a path":       {URL: "https://push.example/x", Lanes: good},
		"user info":    {URL: "https://a:b@push.example", Lanes: good},
		"no lanes":     {URL: "https://push.example"},
		"no weight":    {URL: "https://push.example", Lanes: []Lane{{"a", 0, 1}}},
		"no queue":     {URL: "https://push.example", Lanes: []Lane{{"a", 1, 0}}},
		"negative":     {URL: "https://push.example", Lanes: good, Connections: -1},
		"bad back-off": {URL: "https://push.example", Lanes: good, Backoff: time.Hour},
		"bad pause":    {URL: "https://push.example", Lanes: good, CalmPause: time.Hour},
		"bad url":      {URL: "https://%zz", Lanes: good},
		"a query":      {URL: "https://push.example?a=b", Lanes: good},
		"streams":      {URL: "https://push.example", Lanes: good, StreamsPerConnection: 1<<16 + 1},
		"an answer":    {URL: "https://push.example", Lanes: good, MaxAnswer: 1<<30 + 1},
		"no answer":    {URL: "https://push.example", Lanes: good, MaxAnswer: -1},
		"a reserve":    {URL: "https://push.example", Lanes: good, Reserve: -1},
		"in the past":  {URL: "https://push.example", Lanes: good, Timeout: -1},
		"no dial":      {URL: "https://push.example", Lanes: good, DialTimeout: -1},
		"no silence":   {URL: "https://push.example", Lanes: good, PingInterval: -1},
		"no patience":  {URL: "https://push.example", Lanes: good, PingTimeout: -1},
		"no pause":     {URL: "https://push.example", Lanes: good, CalmPause: -1},
		"no back-off":  {URL: "https://push.example", Lanes: good, Backoff: -1},
	} {
		if p, err := NewPool(opt); err == nil {
			p.Close(context.Background())
			t.Errorf("%s: accepted", why)
		}
	}
}

// Limits are such that their last value is allowed.
func TestTheLargestOptions(t *testing.T) {
	p, err := NewPool(Options{URL: "https://push.example", Lanes: []Lane{{"a", 1, 1}}, StreamsPerConnection: 1 << 16, MaxAnswer: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	p.Close(context.Background())
}

// Who dials by himself gets the host's name, unless he wants it looked up.
func TestWhoLooksUpTheHost(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("not here") }
	lookup := func(context.Context, string) ([]netip.Addr, error) { return nil, nil }
	for _, tt := range []struct {
		why  string
		o    Options
		want bool // whether there is a look-up
	}{
		{"the system does both", Options{}, true},
		{"a dialer of one's own", Options{Dial: dial}, false},
		{"a look-up of one's own", Options{Lookup: lookup}, true},
		{"both", Options{Dial: dial, Lookup: lookup}, true},
	} {
		tt.o.setDefaults()
		if (tt.o.Lookup != nil) != tt.want || tt.o.Dial == nil {
			t.Errorf("%s: look-up %v, want %v", tt.why, tt.o.Lookup != nil, tt.want)
		}
	}
}

// A request may have been changed, or the pool closed, before it is sent again.
// It then ends through the same done, with the reason.
func TestResendThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.answerAll()
		p := s.pool(Options{Connections: 1})
		back := make(chan Outcome, 1)
		r := post("/a")
		if _, err := p.Submit(t.Context(), 0, []*Request{r}, func(rs []*Request) { back <- rs[0].Outcome }); err != nil {
			t.Fatal(err)
		}
		if o := <-back; o != Answered {
			t.Fatalf("%v, %v", o, r.Err)
		}
		p.Resend(r, false)
		if o := <-back; o != Answered || r.Err != nil || p.Stats().Resent != 1 || p.Stats().Dials != 1 {
			t.Errorf("as it is: %v, %v; %+v", o, r.Err, p.Stats())
		}
		r.Path = []byte("/a/../b")
		p.Resend(r, false)
		if o := <-back; o != NotAccepted || !errors.Is(r.Err, ErrMalformed) {
			t.Errorf("malformed: %v, %v", o, r.Err)
		}
		r.Path = []byte("/a")
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Resend(r, true)
		if o := <-back; o != NotAccepted || !errors.Is(r.Err, ErrClosed) {
			t.Errorf("closed: %v, %v", o, r.Err)
		}
	})
}
