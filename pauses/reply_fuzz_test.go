package pauses_test

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// FuzzReply has Redis say anything to the question for all pauses. What is no pause that
// a worker can have told is left out: nothing pauses a route for longer than the longest
// pause, or for a reason that is not told. An error names the key.
func FuzzReply(f *testing.F) {
	member := func(text string) string { return "$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n" }
	list := func(texts ...string) []byte {
		b := "*" + strconv.Itoa(len(texts)) + "\r\n"
		for _, text := range texts {
			b += member(text)
		}
		return []byte(b)
	}
	asks, halts := string(gates.PauseAsked)+" "+fcmShop.String(), string(gates.PauseHalted)+" "+apnsShop.String()
	f.Add(list(asks, "1790000001000", halts, "1790003600000", "1790000000000"))
	f.Add(list("1790000000000"))
	f.Add(list(asks, "1.8e12", "1790000000000"))
	f.Add(list(asks, "inf", "1790000000000"))
	f.Add(list(asks, "nan", "1790000000000"))
	f.Add(list(asks, "-5", "1790000000000"))
	f.Add(list(asks, "1790000001000", "nan"))
	f.Add(list(asks, "1790000001000", "-inf"))
	f.Add(list("errors "+fcmShop.String(), "1790000001000", "1790000000000"))
	f.Add(list("retry_after nowhere", "1790000001000", "1790000000000"))
	f.Add(list("", "", ""))
	f.Add(list(asks, "1790000001000"))
	f.Add([]byte("*0\r\n"))
	f.Add([]byte("*-1\r\n"))
	f.Add([]byte("*3\r\n" + member(asks) + "$-1\r\n" + member("1790000000000")))
	f.Add([]byte("*3\r\n" + member(asks) + ":1790000001000\r\n:1790000000000\r\n"))
	f.Add([]byte("-WRONGTYPE Operation against a key\r\n"))
	f.Add([]byte("-OOM command not allowed\r\n"))
	f.Add([]byte("+OK\r\n"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		client, end, ok := shardstest.Saying(reply, "eval")
		if !ok {
			return
		}
		defer end()
		var log bytes.Buffer
		ps, err := store(t, client, &log).Told(context.Background())
		if err != nil {
			if len(ps) > 0 || !strings.HasPrefix(err.Error(), "reading "+key+": ") {
				t.Errorf("got %v, %v", ps, err)
			}
			return
		}
		said, theirs := shardstest.Asked(t, reply)
		list, isList := said.([]any)
		if wrongType := theirs != nil && strings.Contains(theirs.Error(), "WRONGTYPE"); !wrongType && (theirs != nil || !isList || len(list)%2 == 0) || wrongType && len(ps) > 0 {
			t.Fatalf("got %v; the library says %v, %v", ps, said, theirs)
		}
		if len(ps) > len(list)/2 {
			t.Errorf("got %d pauses of %d values", len(ps), len(list))
		}
		for _, p := range ps {
			if p.Left <= 0 || p.Left > time.Hour || p.Reason != gates.PauseAsked && p.Reason != gates.PauseHalted {
				t.Errorf("got %+v", p)
			}
			if !slices.Contains(list, any(string(p.Reason)+" "+p.Route.String())) {
				t.Errorf("got %+v, which is not told in %q", p, list)
			}
		}
	})
}
