package fanout

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// withTokens has a job's notifications have click tokens.
func withTokens(j *Job) {
	j.Clicks, j.Rest = true, []byte(`"data":{"order":"17"},"sender_id":"shop","app":"shop","type":"news","title":"Snow"}`)
}

// sayingTokens are tokens that say what they are of.
type sayingTokens struct{}

func (sayingTokens) AppendClickToken(out []byte, id, user, app, kind, sender string, accepted time.Time) []byte {
	return fmt.Appendf(out, "%s_%x_%s_%s_%s_%d", id, user, app, kind, sender, accepted.UnixMilli())
}

// dataOf is the data of a record.
func dataOf(t *testing.T, value []byte) (m push.Message, data map[string]string) {
	t.Helper()
	if d := decode.Message(value, &m); d != nil {
		t.Fatalf("a worker cannot read %s: %v", value, d)
	}
	if err := json.Unmarshal(m.Data, &data); err != nil {
		t.Fatal(err)
	}
	return m, data
}

// Each receiver's record has a token of that receiver's own notification, beside the rest of
// the data, and no more bytes than were foretold. What is kept for who fetches has none.
func TestRecordsWithTokens(t *testing.T) {
	for rest, more := range map[string]string{
		`"data":{"order":"17"},"sender_id":"shop","app":"shop","type":"news"}`: "17", `"data":{},"sender_id":"shop","app":"shop","type":"news"}`: "", `"data":{ "order" : "17" },"sender_id":"shop","app":"shop","type":"news"}`: "17",
	} {
		j := aJob(t, func(j *Job) { j.Clicks, j.Rest = true, []byte(rest) })
		value, err := EncodeJob(j)
		if err != nil {
			t.Fatal(err)
		}
		if j, err = DecodeJob(value); err != nil || !j.Clicks || !j.Until.IsZero() {
			t.Fatalf("%+v, %v", j, err)
		}
		for _, user := range []string{"u42", `o"hara`, strings.Repeat("\x01", maxUser)} {
			record := j.appendRecord(nil, user, 0, sayingTokens{})
			if len(record) > j.mostBytes() {
				t.Errorf("%d bytes, at most %d were foretold", len(record), j.mostBytes())
			}
			m, data := dataOf(t, record)
			want := fmt.Sprintf("%s_%x_shop_news_shop_%d", ID(j.Message, user), user, j.Accepted.UnixMilli())
			if m.UserID != user || m.ID != ID(j.Message, user) || data["pf_click"] != want || data["order"] != more {
				t.Errorf("of %q: %s", user, record)
			}
		}
		m, err := j.message()
		if err != nil || strings.Contains(string(m.Data), "pf_click") {
			t.Errorf("for who fetches it: %s, %v", m.Data, err)
		}
	}
	until := aJob(t, withTokens, func(j *Job) { j.Until = j.Expires.Add(time.Hour) })
	if read, err := DecodeJob(until.append(nil)); err != nil || !read.Clicks || !read.Until.Equal(until.Until) {
		t.Errorf("%+v, %v", read, err)
	}
	if j := aJob(t); j.append(nil)[0] != jobVersion || strings.Contains(string(j.appendRecord(nil, "u42", 0, sayingTokens{})), "pf_click") {
		t.Error("a message without tokens has one, or is a job that earlier releases cannot read")
	}
}

// A process that signs no tokens sends no message without them: its chunks wait where
// they keep nobody waiting, and one that does goes on with them.
func TestWhoSignsNoTokensLeavesThemToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := newWorld(manyUsers(25)), aliveJob(t, withTokens)
		if _, err := w.notes.Begin(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		held := w.held(t, j)
		if got := w.ledger.in(j.Topic); len(got) != 0 || !held.Clicks {
			t.Fatalf("%d records", len(got))
		}
		w.Tokens = sayingTokens{}
		if err := w.do(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		all := w.ledger.in(j.Topic)
		for _, value := range all {
			if m, data := dataOf(t, value); !strings.HasPrefix(data["pf_click"], m.ID+"_") {
				t.Errorf("%s", value)
			}
		}
		if len(all) != 25 {
			t.Errorf("%d records", len(all))
		}
	})
}

func BenchmarkRecordWithToken(b *testing.B) {
	j := aJob(b, withTokens)
	out := make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		out = j.appendRecord(out[:0], "user-0001234", 0, probeTokens{})
	}
}
