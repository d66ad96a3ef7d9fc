package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/push"
)

// toldLetters are dead letters of which a test says how many there are. It notes what it
// was asked to do.
type toldLetters struct {
	open     int
	first    int   // place of the first
	fails    error // of what is done
	before   int   // how many were done before it failed
	redriven []dlq.RedriveOptions
	settled  []dlq.DismissOptions
}

func (l *toldLetters) List(_ context.Context, o dlq.ListOptions) ([]dlq.Letter, int, error) {
	if err := o.Check(); err != nil {
		return nil, 0, err
	}
	return []dlq.Letter{{Place: "push.critical.dlq/0/1", ID: "n1", App: hostile, Reason: "retries_used_up", Providers: []string{"apns"}, Devices: []string{"hash"}}}, l.open - 1, nil
}

func (l *toldLetters) Redrive(_ context.Context, o dlq.RedriveOptions) (dlq.Redriven, error) {
	v := dlq.Redriven{DryRun: !o.Do, Matched: l.open + 1, Redriven: l.open, Skipped: map[string]int{dlq.SkipExpired: 1}, Delay: 30}
	for i := range min(o.List, l.open) {
		v.Letters = append(v.Letters, dlq.Letter{Place: fmt.Sprint("push.critical.dlq/0/", l.first+i)})
	}
	if err := o.Check(); err != nil || !o.Do {
		return v, err
	}
	l.redriven = append(l.redriven, o)
	if l.fails != nil {
		v.Redriven = l.before
	}
	return v, l.fails
}

func (l *toldLetters) Dismiss(_ context.Context, o dlq.DismissOptions) (dlq.Dismissed, error) {
	if o.Do {
		l.settled = append(l.settled, o)
	}
	return dlq.Dismissed{DryRun: !o.Do, Dismissed: l.open}, nil
}

const adminKey = "an-admin-key-of-more-than-24-characters"

// newLetterSite is a site with dead letters; empty keys = there are none.
func newLetterSite(t *testing.T, key, adminKey string, letters Letters) *Site {
	t.Helper()
	access, err := NewAccess(key, adminKey, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSite(Options{Feed: NewFeed(), Lookups: &toldLookups{rows: map[string][]push.Row{}}, Letters: letters, Access: access, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// post asks a site to act, by a key.
func post(t *testing.T, s *Site, key string, act map[string]any) (int, letterActed) {
	t.Helper()
	text, err := json.Marshal(act)
	if err != nil {
		t.Fatal(err)
	}
	r := ask(s, "POST", "/letters", func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(string(text))), int64(len(text))
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
	})
	var answer letterActed
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, answer
}

// Nothing is done without the admin key, a name, and the words of a dry run that is still
// true; then it is done once, for what was counted.
func TestLettersAreActedOnAsConfirmed(t *testing.T) {
	l := &toldLetters{open: 3}
	s := newLetterSite(t, goodKey, adminKey, l)
	status, dry := post(t, s, goodKey, map[string]any{"act": "redrive", "lane": "critical", "reason": "retries_used_up"})
	if status != http.StatusOK || !dry.DryRun || dry.N != 3 || dry.Confirm != "redrive 3" || dry.Skipped[dlq.SkipExpired] != 1 || dry.Until.IsZero() {
		t.Fatalf("a dry run: %d, %+v", status, dry)
	}
	do := func(key string, change func(map[string]any)) (int, letterActed) {
		act := map[string]any{"act": "redrive", "lane": "critical", "reason": "retries_used_up", "do": true, "by": "ann", "confirm": dry.Confirm, "until": dry.Until, "seen": dry.Seen}
		change(act)
		return post(t, s, key, act)
	}
	for name, c := range map[string]struct {
		key    string
		change func(map[string]any)
		want   int
	}{
		"no key":        {"", func(map[string]any) {}, 401},
		"a viewer":      {goodKey, func(map[string]any) {}, 403},
		"no name":       {adminKey, func(a map[string]any) { delete(a, "by") }, 400},
		"a broken name": {adminKey, func(a map[string]any) { a["by"] = "ann\nbob" }, 400},
		"a turned name": {adminKey, func(a map[string]any) { a["by"] = "ann\u202ebob" }, 400},
		"a long name":   {adminKey, func(a map[string]any) { a["by"] = strings.Repeat("x", 65) }, 400},
		"no bound":      {adminKey, func(a map[string]any) { delete(a, "until") }, 400},
		"another act":   {adminKey, func(a map[string]any) { a["act"] = "purge" }, 400},
		"other words":   {adminKey, func(a map[string]any) { a["confirm"] = "redrive 4" }, 409},
		"of another":    {adminKey, func(a map[string]any) { a["act"] = "dismiss" }, 409},
		"another lane":  {adminKey, func(a map[string]any) { a["lane"] = "bulk" }, 409},
		"another time":  {adminKey, func(a map[string]any) { a["until"] = dry.Until.Add(time.Hour) }, 409},
		"not seen":      {adminKey, func(a map[string]any) { delete(a, "seen") }, 409},
		"no words":      {adminKey, func(a map[string]any) { delete(a, "confirm") }, 409},
		"more than is":  {adminKey, func(a map[string]any) { a["password"] = "x" }, 400},
	} {
		if status, answer := do(c.key, c.change); status != c.want || answer.Error == "" {
			t.Errorf("%s: %d, %+v, want %d", name, status, answer, c.want)
		}
	}
	l.open = 4
	if status, answer := do(adminKey, func(map[string]any) {}); status != http.StatusConflict || !strings.Contains(answer.Error, "redrive 4") {
		t.Errorf("there are more by now: %d, %+v", status, answer)
	}
	if len(l.redriven)+len(l.settled) != 0 {
		t.Fatalf("it was done: %+v, %+v", l.redriven, l.settled)
	}
	l.open = 3
	if status, answer := do(adminKey, func(map[string]any) {}); status != http.StatusOK || answer.DryRun || answer.N != 3 || answer.Error != "" {
		t.Errorf("confirmed: %d, %+v", status, answer)
	}
	if len(l.redriven) != 1 {
		t.Fatalf("done %d times", len(l.redriven))
	}
	o := l.redriven[0]
	if o.By != "ann (dashboard)" || !o.Until.Equal(dry.Until) || !slices.Equal(o.Lanes, []string{"critical"}) || !slices.Equal(o.Reasons, []string{"retries_used_up"}) || o.Limit != 1000 || o.Rate != 100 || o.MaxRedrives != 3 || len(o.Apps)+len(o.IDs)+len(o.Senders)+len(o.Providers) != 0 {
		t.Errorf("done: %+v", o)
	}
	// There are as many by now, and they are others: as after another admin's redrive, or
	// one's own whose answer was lost, where there are more than are redriven at once.
	l.first = 3
	if status, answer := do(adminKey, func(map[string]any) {}); status != http.StatusConflict || answer.Error == "" || len(l.redriven) != 1 {
		t.Errorf("others: %d, %+v, done %d times", status, answer, len(l.redriven))
	}
	l.first = 0
	_, counted := post(t, s, goodKey, map[string]any{"act": "dismiss", "lane": "critical", "reason": "retries_used_up", "until": dry.Until})
	if status, answer := do(adminKey, func(a map[string]any) { a["act"], a["confirm"], a["seen"] = "dismiss", "dismiss 3", counted.Seen }); status != http.StatusOK || len(l.settled) != 1 || l.settled[0].By != "ann (dashboard)" {
		t.Errorf("dismissed: %d, %+v, %+v", status, answer, l.settled)
	}
	// What ends in the middle says so, also when nothing of it is certain.
	l.fails = &dlq.UncountedError{Err: errors.New("away"), Letters: 3}
	if status, answer := do(adminKey, func(map[string]any) {}); status != http.StatusOK || answer.N != 0 || !strings.Contains(answer.Error, "in the middle") {
		t.Errorf("in the middle: %d, %+v", status, answer)
	}
	l.fails, l.before = errors.New("away"), 2
	if status, answer := do(adminKey, func(map[string]any) {}); status != http.StatusOK || answer.N != 2 || !strings.Contains(answer.Error, "in the middle: 2 were done") {
		t.Errorf("away in the middle: %d, %+v", status, answer)
	}
	l.before = 0
	if status, answer := do(adminKey, func(map[string]any) {}); status != http.StatusServiceUnavailable || strings.Contains(answer.Error, "away") {
		t.Errorf("Kafka away: %d, %+v", status, answer)
	}
}

// What is kept of who acts is read by people: nothing in it makes another name of it. Names
// are in any script.
func TestNamesThatAreKept(t *testing.T) {
	for _, by := range []string{"ann", "Åsa Öberg", "دانا", "می\u200cخواهم", strings.Repeat("x", maxBy)} {
		if !isName(by) {
			t.Errorf("%q is none", by)
		}
	}
	wrong := []string{"", strings.Repeat("x", maxBy+1)}
	for _, r := range "\x00\n\x7f\u0085\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069" {
		wrong = append(wrong, "ann"+string(r), string(r)+"ann")
	}
	for _, by := range wrong {
		if isName(by) {
			t.Errorf("%q is kept", by)
		}
	}
}

// Of more than are redriven at once it is said that there may be others. What one act has
// counted is not what another one is about.
func TestLettersAreRedrivenInParts(t *testing.T) {
	l := &toldLetters{}
	s := newLetterSite(t, goodKey, adminKey, l)
	for _, l.open = range []int{maxRedrive - 1, maxRedrive} {
		if _, dry := post(t, s, goodKey, map[string]any{"act": redrive}); dry.N != l.open || dry.More != (l.open == maxRedrive) {
			t.Errorf("of %d: %d, more: %v", l.open, dry.N, dry.More)
		}
	}
	l.open = 0
	_, one := post(t, s, goodKey, map[string]any{"act": redrive})
	if _, other := post(t, s, goodKey, map[string]any{"act": dismiss, "until": one.Until}); other.Seen == one.Seen {
		t.Error("one act has seen what the other one has")
	}
}

// A page of somebody else's cannot act, also where no key is needed to look.
func TestLettersOfAnotherPage(t *testing.T) {
	l := &toldLetters{open: 1}
	s := newLetterSite(t, "", adminKey, l)
	for _, site := range []string{"cross-site", "same-site"} {
		r := ask(s, "POST", "/letters", func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(`{"act":"redrive"}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Sec-Fetch-Site", site)
		})
		if r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", site, r.StatusCode)
		}
	}
	if r := ask(s, "POST", "/letters", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"act":"redrive"}`)) }); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a form: %d", r.StatusCode)
	}
	if status, _ := post(t, s, "", map[string]any{"act": "redrive", "do": true, "by": "ann", "confirm": "redrive 1", "until": time.Now()}); status != http.StatusForbidden {
		t.Errorf("without the admin key: %d", status)
	}
}

// A list says who may act on it.
func TestLettersAreListed(t *testing.T) {
	for _, c := range []struct{ key, admin, given, want string }{
		{"", "", "", `"acts":"nobody"`}, {"", adminKey, "", `"acts":"admin"`}, {"", adminKey, adminKey, `"acts":"you"`},
		{goodKey, adminKey, goodKey, `"acts":"admin"`}, {goodKey, adminKey, adminKey, `"acts":"you"`}, {goodKey, "", goodKey, `"acts":"nobody"`},
	} {
		s := newLetterSite(t, c.key, c.admin, &toldLetters{open: 5})
		got := body(t, ask(s, "GET", "/letters?lane=critical", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+c.given) }))
		if !strings.Contains(got, c.want) || !strings.Contains(got, `"older":4`) || !strings.Contains(got, `"id":"n1"`) {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if r := ask(newLetterSite(t, "", "", &toldLetters{}), "GET", "/letters?provider=nobody", nil); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a provider that is none: %d", r.StatusCode)
	}
	if r := ask(newLetterSite(t, "", "", nil), "GET", "/letters", nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("without dead letters: %d", r.StatusCode)
	}
	if _, err := NewAccess(goodKey, goodKey, false); err == nil {
		t.Error("one key for both")
	}
	if _, err := NewAccess("", "short", false); err == nil {
		t.Error("a short admin key")
	}
}
