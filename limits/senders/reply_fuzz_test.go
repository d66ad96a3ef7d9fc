package senders

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// FuzzReply has Redis say anything to a call for three tokens of a sender: two that can
// wait for an hour, and one that cannot. What is taken for an answer has the numbers of
// one. Nothing goes at once for which there is no token, and nothing waits for longer
// than a bucket can owe.
func FuzzReply(f *testing.F) {
	// Tokens and how far the bucket is from full in us, for each of the two runs.
	f.Add([]byte("*4\r\n:2\r\n:0\r\n:0\r\n:120000000\r\n"))
	f.Add([]byte("*4\r\n:2\r\n:60000000\r\n:1\r\n:180000000\r\n"))
	f.Add([]byte("*4\r\n:0\r\n:3720000000\r\n:0\r\n:3720000000\r\n"))
	f.Add([]byte("*4\r\n:2\r\n:-1\r\n:0\r\n:0\r\n"))
	f.Add([]byte("*4\r\n:2\r\n:9223372036854775807\r\n:0\r\n:0\r\n"))
	f.Add([]byte("*4\r\n:2\r\n:172860000001\r\n:0\r\n:0\r\n"))
	f.Add([]byte("*4\r\n:3\r\n:0\r\n:0\r\n:0\r\n"))
	f.Add([]byte("*4\r\n:-1\r\n:0\r\n:0\r\n:0\r\n"))
	f.Add([]byte("*4\r\n$1\r\n2\r\n:0\r\n:0\r\n:0\r\n"))
	f.Add([]byte("*4\r\n:2\r\n$-1\r\n:0\r\n:0\r\n"))
	f.Add([]byte("*3\r\n:2\r\n:0\r\n:0\r\n"))
	f.Add([]byte("*-1\r\n"))
	f.Add([]byte("$-1\r\n"))
	f.Add([]byte(":4\r\n"))
	f.Add([]byte("-OOM command not allowed\r\n"))
	f.Add([]byte("-NOSCRIPT No matching script.\r\n"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		client, end, ok := shardstest.Saying(reply, "eval")
		if !ok {
			return
		}
		defer end()
		reqs := from("orders", 3, start)
		reqs[2].Expires = start.Add(time.Second)
		l := under(t, client, hourly(time.Hour))
		err := l.Decide(context.Background(), reqs)
		b := l.buckets[0]
		for i, r := range reqs {
			if r.Allowed == r.Deferred && (r.Allowed || r.Rule == "") {
				t.Errorf("request %d: %+v", i, r.Decision)
			}
			if longest := 2*maxWindow + time.Minute + time.Hour; r.Deferred && (r.RetryAfter < 0 || r.RetryAfter == 0 && r.Paid || r.RetryAfter > longest) {
				t.Errorf("request %d has to wait for %v: %+v", i, r.RetryAfter, r.Decision)
			}
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "taking tokens of senders: ") {
				t.Errorf("got %v", err)
			}
			return
		}
		said, theirs := shardstest.Asked(t, reply)
		list, isList := said.([]any)
		if theirs != nil || !isList || len(list) != 4 {
			t.Fatalf("taken for an answer; the library says %v, %v", said, theirs)
		}
		for run, of := range [][]*limits.Request{reqs[:2], reqs[2:]} {
			granted, behind := number(list[2*run]), number(list[2*run+1])
			if granted < 0 || granted > int64(len(of)) || behind < 0 || behind > mostOwed {
				t.Fatalf("taken for an answer: %v", list)
			}
			for k, r := range of {
				if r.Paid != (int64(k) < granted) {
					t.Errorf("run %d, request %d: has a token: %v, of %d", run, k, r.Paid, granted)
				}
				if over := behind+int64(k+1)*b.every > b.full; r.Paid && r.Allowed == over {
					t.Errorf("run %d, request %d goes at once: %v; the bucket lacks %d us of %d", run, k, r.Allowed, behind, b.full)
				}
			}
		}
		if slices.ContainsFunc(reqs, func(r *limits.Request) bool { return r.Allowed && !r.Paid }) {
			t.Errorf("allowed without a token: %s", inWords(reqs))
		}
	})
}

// number is what the library takes for one, as a text too.
func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		var n int64
		if _, err := fmt.Sscan(v, &n); err == nil {
			return n
		}
	}
	return -1
}
