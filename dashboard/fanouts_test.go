package dashboard

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
)

const fanoutText = "Everything must go"

// newJob is a message for the subscribers of a topic that was accepted at a time.
func newJob(t *testing.T, at time.Time) *fanout.Job {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return &fanout.Job{Message: id, Sender: "campaigns", App: hostile, ServiceType: "promotional", Lane: "critical", Topic: laneTopic, Partitions: 2, Accepted: at.UTC().Truncate(time.Millisecond),
		Expires: at.Add(time.Hour).UTC().Truncate(time.Millisecond), Campaign: "sale", Priority: push.Medium, To: fanout.To{Kind: fanout.OfTopic, Name: "offers", Buckets: 1, Parts: 16},
		Rest: []byte(`"app":"` + hostile + `","sender_id":"campaigns","title":"` + fanoutText + `"}`)}
}

// fanoutSite is a site with fan-outs, of which none has begun.
func fanoutSite(t *testing.T, jobs ...*fanout.Job) (*Site, *fanout.Memory) {
	t.Helper()
	access, err := NewAccess("", adminKey, false)
	if err != nil {
		t.Fatal(err)
	}
	memory, feed := fanout.NewMemory(), NewFeed()
	for _, j := range jobs {
		feed.AddFanout(j)
	}
	s, err := NewSite(Options{Feed: feed, Lookups: &toldLookups{}, Fanouts: memory, Access: access, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s, memory
}

// listedFanouts are what a site lists.
func listedFanouts(t *testing.T, s *Site, query string) []Fanout {
	t.Helper()
	var answer struct{ Fanouts []Fanout }
	text := body(t, ask(s, "GET", "/fanouts"+query, nil))
	if err := json.Unmarshal([]byte(text), &answer); err != nil || strings.Contains(text, fanoutText) {
		t.Fatalf("%v: %s", err, text)
	}
	return answer.Fanouts
}

// The newest fan-outs are listed with their progress and without their text, copies once.
func TestFanoutsAreListed(t *testing.T) {
	older, newer := newJob(t, time.Now().Add(-time.Minute)), newJob(t, time.Now())
	s, memory := fanoutSite(t, older, newer, older)
	got := listedFanouts(t, s, "")
	if len(got) != 2 || got[0].ID != newer.Message || got[0].State != "accepted" || got[0].Topic != "offers" || got[0].Campaign != "sale" || got[0].Parts != 16 ||
		!slices.Equal(got[0].Orders, []string{"pause", "cancel"}) || !got[1].Accepted.Equal(older.Accepted) {
		t.Fatalf("%+v", got)
	}
	if _, err := memory.Begin(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	for part := range 16 {
		counts := fanout.Counts{Emitted: 10}
		counts.Skipped[fanout.SkipLeft] = 2
		if err := memory.End(t.Context(), older.Message, part, &counts); err != nil {
			t.Fatal(err)
		}
		one := listedFanouts(t, s, "?id="+older.Message.String())[0]
		if want := map[bool]string{false: "running", true: "ended"}[part == 15]; one.Ended != part+1 || one.Emitted != int64(10*(part+1)) || one.Skipped["left"] != int64(2*(part+1)) || one.State != want {
			t.Errorf("after %d parts: %+v", part+1, one)
		}
	}
	if one := listedFanouts(t, s, "?id="+older.Message.String())[0]; len(one.Orders) != 0 {
		t.Errorf("of one that has ended: %v", one.Orders)
	}
	for i := range 2 * maxFanouts {
		s.o.Feed.AddFanout(newJob(t, time.Now().Add(time.Duration(i)*time.Second)))
	}
	if got := s.o.Feed.recentFanouts(2 * maxFanouts); len(got) != maxFanouts || !slices.IsSortedFunc(got, func(x, y job) int { return y.accepted.Compare(x.accepted) }) {
		t.Errorf("%d are kept", len(got))
	}
	if n := len(listedFanouts(t, s, "")); n != fanoutsShown {
		t.Errorf("%d are listed", n)
	}
	if n := len(listedFanouts(t, s, "?id="+uuid.Must(uuid.NewV7()).String())); n != 0 {
		t.Errorf("%d of an id that there is not", n)
	}
}

// Orders need the admin key, a name, and what was typed; of those that cannot be given the
// page is told why.
func TestFanoutsAreOrdered(t *testing.T) {
	j := newJob(t, time.Now())
	s, memory := fanoutSite(t, j)
	order := func(key, id, order, confirm, by string) int {
		t.Helper()
		text, err := json.Marshal(fanoutOrder{id, order, confirm, by})
		if err != nil {
			t.Fatal(err)
		}
		return ask(s, "POST", "/fanouts", func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(string(text)))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+key)
		}).StatusCode
	}
	state := func(want fanout.State) {
		t.Helper()
		if got, err := memory.State(t.Context(), j.Message); got != want || err != nil {
			t.Errorf("it is %v, %v, want %v", got, err, want)
		}
	}
	id := j.Message.String()
	end := " " + id[len(id)-confirmLetters:]
	other := uuid.Must(uuid.NewV7()).String()
	for _, c := range []struct {
		key, id, order, confirm, by string
		want                        int
	}{
		{"", id, "pause", "pause" + end, "ann", 403},
		{adminKey, id, "pause", "pause", "ann", 409},
		{adminKey, id, "pause", "cancel" + end, "ann", 409},
		{adminKey, id, "pause", "pause" + end, "", 400},
		{adminKey, id, "stop", "stop" + end, "ann", 400},
		{adminKey, "short", "pause", "pause" + end, "ann", 409},
		{adminKey, "no-id-at-all", "pause", "pause at-all", "ann", 400},
		{adminKey, other, "pause", "pause " + other[len(other)-confirmLetters:], "ann", 404},
	} {
		if got := order(c.key, c.id, c.order, c.confirm, c.by); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	state(fanout.Running)
	if _, err := memory.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	do := func(word string, want int) {
		t.Helper()
		if got := order(adminKey, id, word, word+end, "ann"); got != want {
			t.Errorf("%s: %d, want %d", word, got, want)
		}
	}
	var told bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&told, nil))
	do("pause", 200)
	if got := told.String(); !strings.Contains(got, "message="+id) || !strings.Contains(got, "order=pause") || !strings.Contains(got, `by="ann (dashboard)"`) {
		t.Errorf("the log says %s", got)
	}
	state(fanout.Paused)
	if got := listedFanouts(t, s, ""); got[0].State != "paused" || !slices.Equal(got[0].Orders, []string{"resume", "cancel"}) {
		t.Errorf("paused: %+v", got[0])
	}
	do("resume", 200)
	state(fanout.Running)
	do("cancel", 200)
	state(fanout.Cancelled)
	do("resume", 409)
	do("pause", 409)
	state(fanout.Cancelled)
	if got := listedFanouts(t, s, ""); got[0].State != "cancelled" || len(got[0].Orders) != 0 {
		t.Errorf("cancelled: %+v", got[0])
	}
	if r := ask(newSite(t, ""), "GET", "/fanouts", nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("without fan-outs: %d", r.StatusCode)
	}
}
