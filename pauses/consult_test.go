package pauses_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// member is the store of one worker. Probes do not lapse while a test runs.
func member(t *testing.T, client shards.Client, name string, log *bytes.Buffer) *pauses.Store {
	t.Helper()
	s, err := pauses.New(client, pauses.Options{Fleet: fleet, Longest: time.Hour, Log: slog.New(slog.NewTextHandler(log, nil)), Member: name,
		Probes: 3, ProbeTimeout: time.Hour, FirstPause: time.Minute, LongestPause: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asks is the evidence of a worker that would send probes.
func asks() gates.Evidence {
	return gates.Evidence{Route: fcmShop, Bad: 5, Closed: true, For: time.Minute, Asks: true}
}

// consult returns the one word about the route.
func consult(t *testing.T, s *pauses.Store, es ...gates.Evidence) (w gates.Word) {
	t.Helper()
	_, ws, err := s.Consult(t.Context(), es)
	if err != nil || len(ws) > 1 {
		t.Fatalf("%v, %v", ws, err)
	}
	if len(ws) == 1 {
		w = ws[0]
	}
	return w
}

func TestProbesAreGrantedToTwo(t *testing.T) {
	onEach(t, func(t *testing.T, client shards.Client) {
		client.Del(t.Context(), shards.EvidenceKey(fleet))
		var log bytes.Buffer
		a, b, c := member(t, client, "a", &log), member(t, client, "b", &log), member(t, client, "c", &log)
		tell(t, a, gates.Pause{Route: apnsShop, Reason: gates.PauseAsked, Left: 10 * time.Minute})
		if ps, ws, err := b.Consult(t.Context(), nil); err != nil || len(ps) != 1 || ps[0].Route != apnsShop || len(ws) > 0 {
			t.Errorf("with nothing to tell: %v, %v, %v; want the pause that was told", ps, ws, err)
		}
		if w := consult(t, a, asks()); w.Probes != 2 || w.Workers != 0 || w.Closed != 0 {
			t.Errorf("the first worker hears %+v, want two probes", w)
		}
		if w := consult(t, a, asks()); w.Probes != 0 {
			t.Errorf("who has probes hears %+v, want no more", w)
		}
		if w := consult(t, b, asks()); w.Probes != 1 || w.Workers != 1 || w.Closed != 1 || w.Failing != 1 || w.Bad != 5 {
			t.Errorf("the second hears %+v, want one probe", w)
		}
		if w := consult(t, c, asks()); w.Probes != 0 || w.Closed != 2 {
			t.Errorf("the third hears %+v, want none", w)
		}
		failed := asks()
		failed.Answered.Bad = 2
		failed.Asks = false
		consult(t, a, failed)
		failed.Answered.Bad = 1
		consult(t, b, failed)
		if w := consult(t, c, asks()); w.Probes != 0 || w.Left < time.Minute || w.Left > 2*time.Minute || w.Well {
			t.Errorf("after a round that went badly: %+v, want two minutes until the next", w)
		}
		// A round goes well, for whoever was closed before.
		client.HSet(t.Context(), shards.EvidenceKey(fleet), "r "+fcmShop.String(), "1 0 0 0 - 0 0 0 0 - 0 0 0 0")
		if w := consult(t, c, asks()); w.Probes != 2 {
			t.Errorf("in the next round: %+v, want two probes", w)
		}
		well := asks()
		well.Asks, well.Answered.Good = false, 2
		consult(t, c, well)
		if w := consult(t, a, asks()); !w.Well || w.Probes != 0 {
			t.Errorf("after a round that went well: %+v", w)
		}
		young := asks()
		young.For = 0
		time.Sleep(2 * time.Millisecond) // of Redis's clock
		if w := consult(t, b, young); w.Well || w.Probes != 2 {
			t.Errorf("who has closed since hears %+v, want probes of a new round", w)
		}
		if log.Len() > 0 {
			t.Errorf("log:\n%s", &log)
		}
	})
}

// Whatever stands there, workers go on.
func TestGarbageAmongEvidence(t *testing.T) {
	for why, write := range map[string]func(ctx context.Context, c shards.Client, key string) error{
		"no hash": func(ctx context.Context, c shards.Client, key string) error { return c.Set(ctx, key, "x", 0).Err() },
		"fields of a later version": func(ctx context.Context, c shards.Client, key string) error {
			return c.HSet(ctx, key, "x y", "z", "w a", "1", "w a b c", "1", "", "").Err()
		},
		"evidence without numbers": func(ctx context.Context, c shards.Client, key string) error {
			return c.HSet(ctx, key, "w z fcm/shop", "now 1 2 3 4 5", "w y fcm/shop", "99999999999999999999 1 1 1 1 1", "w x nowhere", "1 1 1 1 1 1").Err()
		},
		"a round without numbers": func(ctx context.Context, c shards.Client, key string) error {
			return c.HSet(ctx, key, "r fcm/shop", "a b c d e f g - - 1e99 -1 nan inf").Err()
		},
		"a round for ever": func(ctx context.Context, c shards.Client, key string) error {
			return c.HSet(ctx, key, "r fcm/shop", "99 99999999999999 99999999999999 99999999999999 q 3 99999999999999 0 0 p 3 99999999999999 0 0").Err()
		},
	} {
		t.Run(why, func(t *testing.T) {
			onEach(t, func(t *testing.T, client shards.Client) {
				key := shards.EvidenceKey(fleet)
				client.Del(t.Context(), key)
				if err := write(t.Context(), client, key); err != nil {
					t.Fatal(err)
				}
				if w := consult(t, member(t, client, "a", new(bytes.Buffer)), asks()); w.Probes != 2 || w.Workers > 0 || w.Left > 0 || w.Well {
					t.Errorf("got %+v, want two probes", w)
				}
			})
		})
	}
}

// FuzzWords has Redis say anything to a question for the fleet's evidence.
func FuzzWords(f *testing.F) {
	f.Add([]byte("*2\r\n*1\r\n$13\r\n1790000000000\r\n*9\r\n$8\r\nfcm/shop\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n0\r\n$1\r\n5\r\n$1\r\n2\r\n$1\r\n0\r\n$1\r\n0\r\n"))
	f.Add([]byte("*2\r\n*1\r\n$13\r\n1790000000000\r\n*9\r\n$8\r\nfcm/shop\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n0\r\n$1\r\n5\r\n$2\r\n99\r\n$1\r\n0\r\n$1\r\n0\r\n"))
	f.Add([]byte("*2\r\n*1\r\n$13\r\n1790000000000\r\n*0\r\n"))
	f.Add([]byte("*2\r\n*0\r\n*0\r\n"))
	f.Add([]byte("*2\r\n:1\r\n$1\r\n1\r\n"))
	f.Add([]byte("*1\r\n*0\r\n"))
	f.Add([]byte("-OOM command not allowed\r\n"))
	f.Add([]byte("+OK\r\n"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		client, end, ok := shardstest.Saying(reply, "eval")
		if !ok {
			return
		}
		defer end()
		ps, ws, err := member(t, client, "a", new(bytes.Buffer)).Consult(context.Background(), []gates.Evidence{asks()})
		if err != nil {
			if len(ps)+len(ws) > 0 || !strings.HasPrefix(err.Error(), "reading ") {
				t.Errorf("got %v, %v, %v", ps, ws, err)
			}
			return
		}
		for _, w := range ws {
			if _, ok := push.ParseRoute(w.Route.String()); !ok || min(w.Workers, w.Closed, w.Failing, w.Good, w.Bad, w.Probes) < 0 || w.Probes > 3 || w.Left < 0 || w.Left > 2*time.Hour {
				t.Errorf("got %+v", w)
			}
		}
	})
}
