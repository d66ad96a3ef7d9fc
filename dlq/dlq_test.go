package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

func TestLanes(t *testing.T) {
	queues, _ := twoLanes(0)
	for _, tt := range []struct {
		why, want string
		names     []string
	}{
		{"no names are all", "l m", nil},
		{"by its name", "m", []string{"m"}},
		{"by its topic", "m", []string{"more"}},
		{"by its DLQ", "l", []string{"push.dlq"}},
		{"in the order of the configuration, each once", "l m", []string{"more", "l", "push"}},
		{"one that is not there", `lane: no lane or topic "x"; the configuration has l, m`, []string{"l", "x"}},
		{"a retry topic is no DLQ", `lane: no lane or topic "push.retry.30s"; the configuration has l, m`, []string{"push.retry.30s"}},
	} {
		lanes, err := queues.Lanes(tt.names...)
		names := []string{}
		for _, l := range lanes {
			names = append(names, l.Name)
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if _, option := errors.AsType[*OptionError](err); got != tt.want || option != (err != nil) {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		}
	}
}

func TestFilter(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC)
	d := kafka.DeadLetter{Topic: "push.dlq", Timestamp: at, Reason: "retries_used_up", Detail: "UNAVAILABLE", Providers: []string{"fcm"}, Value: []byte(`{"id":"n","app":"shop","user_id":"u","sender_id":"orders","title":"t"}`)}
	device := d
	device.Providers, device.Value = nil, []byte(`{"id":"n","app":"shop","device":{"platform":"apns","token":"`+strings.Repeat("ab", 32)+`"},"title":"t"}`)
	fault := d
	fault.Reason, fault.Detail = "bad_value", "title"
	for _, tt := range []struct {
		why    string
		letter *kafka.DeadLetter
		marked bool
		filter Filter
		passes bool
	}{
		{"the zero filter", &d, false, Filter{}, true},
		{"what is closed, unasked", &d, true, Filter{}, false},
		{"what is closed", &d, true, Filter{Marked: true}, true},
		{"since is its first moment", &d, false, Filter{Since: at}, true},
		{"before since", &d, false, Filter{Since: at.Add(1)}, false},
		{"until is over", &d, false, Filter{Until: at}, false},
		{"before until", &d, false, Filter{Until: at.Add(1)}, true},
		{"one of the ids", &d, false, Filter{IDs: []string{"m", "n"}}, true},
		{"another id", &d, false, Filter{IDs: []string{"m"}}, false},
		{"its app", &d, false, Filter{Apps: []string{"shop"}}, true},
		{"another app", &d, false, Filter{Apps: []string{"bank"}}, false},
		{"its sender", &d, false, Filter{Senders: []string{"orders"}}, true},
		{"another sender", &d, false, Filter{Senders: []string{"x"}}, false},
		{"its reason", &d, false, Filter{Reasons: []string{"retries_used_up"}}, true},
		{"the provider's last word", &d, false, Filter{Reasons: []string{"UNAVAILABLE"}}, true},
		{"another reason", &d, false, Filter{Reasons: []string{"unknown_app"}}, false},
		{"a field at fault is no reason", &fault, false, Filter{Reasons: []string{"title"}}, false},
		{"its provider", &d, false, Filter{Providers: []string{"fcm"}}, true},
		{"another provider", &d, false, Filter{Providers: []string{"apns"}}, false},
		{"the provider of its device", &device, false, Filter{Providers: []string{"apns"}}, true},
		{"all but one", &d, false, Filter{Apps: []string{"shop"}, Senders: []string{"x"}}, false},
	} {
		r := newRecord(&Lane{Name: "l", GreatestAge: time.Hour}, tt.letter, nil)
		r.marked = tt.marked
		if got := tt.filter.passes(&r); got != tt.passes {
			t.Errorf("%s: passes %v", tt.why, got)
		}
	}
}

// What cannot be is refused before Kafka is asked for anything.
func TestOptionsAreChecked(t *testing.T) {
	bad := Filter{Providers: []string{"sms"}}
	ctx := t.Context()
	for _, tt := range []struct {
		want string
		call func(*Queues) error
	}{
		{`provider: "sms" is neither apns nor fcm`, func(q *Queues) error { _, _, err := q.List(ctx, ListOptions{Filter: bad}); return err }},
		{"limit: must be 0 or more", func(q *Queues) error { _, _, err := q.List(ctx, ListOptions{Limit: -1}); return err }},
		{`provider: "sms" is neither apns nor fcm`, func(q *Queues) error { _, err := q.Stats(ctx, StatsOptions{Filter: bad}); return err }},
		{"top: must be 0 or more", func(q *Queues) error { _, err := q.Stats(ctx, StatsOptions{Top: -1}); return err }},
		{`lane: no lane or topic "x.dlq"; the configuration has l`, func(q *Queues) error { _, err := q.Show(ctx, "x.dlq/0/1", ShowOptions{}); return err }},
		{"rate: must be 0.1 to 100,000", func(q *Queues) error { _, err := q.Redrive(ctx, RedriveOptions{MaxRedrives: 3}); return err }},
		{"limit: must be 0 or more", func(q *Queues) error {
			_, err := q.Redrive(ctx, RedriveOptions{Rate: 1, MaxRedrives: 1, Limit: -1})
			return err
		}},
		{"max-redrives: must be 1 or more", func(q *Queues) error { _, err := q.Redrive(ctx, RedriveOptions{Rate: 1}); return err }},
		{"max-age: must be 0 or more", func(q *Queues) error {
			_, err := q.Redrive(ctx, RedriveOptions{Rate: 1, MaxRedrives: 1, MaxAge: -1})
			return err
		}},
		{"list: must be 0 or more", func(q *Queues) error {
			_, err := q.Redrive(ctx, RedriveOptions{Rate: 1, MaxRedrives: 1, List: -1})
			return err
		}},
		{`provider: "sms" is neither apns nor fcm`, func(q *Queues) error { _, err := q.Dismiss(ctx, DismissOptions{Filter: bad}); return err }},
		{`lane: no lane or topic "x"; the configuration has l`, func(q *Queues) error {
			_, err := q.Dismiss(ctx, DismissOptions{Filter: Filter{Lanes: []string{"x"}}})
			return err
		}},
		{"before: exactly one of before and all must be given", func(q *Queues) error { _, err := q.Purge(ctx, PurgeOptions{}); return err }},
		{"before: exactly one of before and all must be given", func(q *Queues) error {
			_, err := q.Purge(ctx, PurgeOptions{All: true, Before: time.Now()})
			return err
		}},
	} {
		f := &fleet{queues: map[string]*queue{"push": newQueue(1)}}
		err := tt.call(New(oneLane, f))
		if _, ok := errors.AsType[*OptionError](err); !ok || err.Error() != tt.want || len(f.reached) != 0 {
			t.Errorf("%v, want %s; %v were asked for", err, tt.want, f.reached)
		}
	}
}

// Looking needs no audit topic; doing does, because else nobody would know.
func TestWithoutAudit(t *testing.T) {
	queues, f := twoLanes(2)
	f.missing = []string{"push.dlq.audit", "more.dlq.audit"}
	if letters, _, err := queues.List(t.Context(), ListOptions{}); err != nil || len(letters) != 3 {
		t.Errorf("%v: %v", letters, err)
	}
	if v, err := queues.Redrive(t.Context(), RedriveOptions{Rate: 100, MaxRedrives: 3}); err != nil || v.Redriven != 3 {
		t.Errorf("a dry run: %+v: %v", v, err)
	}
	missing := func(err error) {
		t.Helper()
		if some, ok := errors.AsType[*kafka.MissingTopicsError](err); !ok || some.Topics[0] != "push.dlq.audit" {
			t.Error(err)
		}
	}
	_, err := queues.Redrive(t.Context(), RedriveOptions{Rate: 100, MaxRedrives: 3, Do: true})
	missing(err)
	_, err = queues.Dismiss(t.Context(), DismissOptions{Do: true})
	missing(err)
	_, err = queues.Purge(t.Context(), PurgeOptions{All: true, Do: true})
	missing(err)
	if q := f.queues["push"]; len(q.sent) != 0 || len(q.letters) != 2 {
		t.Errorf("%d were sent and %d are left", len(q.sent), len(q.letters))
	}
	f.closed(t)
}

// Marks that cannot be read end every call, and nothing stays open: nobody could
// tell what is to be done.
func TestUnreadableMarks(t *testing.T) {
	for _, do := range []bool{false, true} {
		for what, call := range map[string]func(*Queues) error{
			"list": func(q *Queues) error { _, _, err := q.List(t.Context(), ListOptions{}); return err },
			"redrive": func(q *Queues) error {
				_, err := q.Redrive(t.Context(), RedriveOptions{Rate: 100, MaxRedrives: 3, Do: do})
				return err
			},
			"dismiss": func(q *Queues) error { _, err := q.Dismiss(t.Context(), DismissOptions{Do: do}); return err },
			"purge":   func(q *Queues) error { _, err := q.Purge(t.Context(), PurgeOptions{All: true, Do: do}); return err },
		} {
			queues, f := twoLanes(2)
			q := f.queues["push"]
			q.unread = errors.New("the audit topic cannot be read")
			if err := call(queues); !errors.Is(err, q.unread) {
				t.Errorf("%s: %v, want %v", what, err, q.unread)
			}
			if len(q.sent)+len(q.marks) != 0 || len(q.letters) != 2 {
				t.Errorf("%s: %d sent, %d marked, %d left of 2", what, len(q.sent), len(q.marks), len(q.letters))
			}
			f.closed(t)
		}
	}
}

// A lane that cannot be redriven to stops the redrive before anything is sent.
func TestRedriveNeedsEveryRetryTopic(t *testing.T) {
	queues, f := twoLanes(2)
	f.missing = []string{"more.retry.30s"}
	v, err := queues.Redrive(t.Context(), RedriveOptions{Rate: 100, MaxRedrives: 3, Do: true})
	if _, ok := errors.AsType[*kafka.MissingTopicsError](err); !ok || v.Redriven != 0 || len(f.queues["push"].sent) != 0 {
		t.Errorf("%+v, %d sent: %v", v, len(f.queues["push"].sent), err)
	}
	f.closed(t)
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues, f := twoLanes(3)
		for i, d := range f.queues["push"].letters {
			d.Timestamp = time.Now().Add(time.Duration(i-1) * time.Second)
		}
		for _, tt := range []struct {
			why   string
			limit int
			want  []string
			older int
		}{
			{"all, in the order of time", 0, []string{"n0", "n1", "m0", "n2"}, 0},
			{"the newest", 2, []string{"m0", "n2"}, 2},
			{"as many as there are", 4, []string{"n0", "n1", "m0", "n2"}, 0},
		} {
			letters, older, err := queues.List(t.Context(), ListOptions{Limit: tt.limit})
			if err != nil || !slices.Equal(idsOf(letters), tt.want) || older != tt.older {
				t.Errorf("%s: %v and %d older: %v", tt.why, idsOf(letters), older, err)
			}
		}
		if none, _, err := queues.List(t.Context(), ListOptions{Filter: Filter{Apps: []string{"x"}}}); err != nil || none == nil || len(none) != 0 {
			t.Errorf("none: %v: %v", none, err)
		}
		f.closed(t)
	})
}

// However many there are, not many more than the limit are kept.
func TestListKeepsTheNewestOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(3500)
		for i, d := range q.letters {
			d.Timestamp = time.Now().Add(-time.Duration(i) * time.Second) // the newest is read first
		}
		var told []Reading
		letters, older, err := of(q).List(t.Context(), ListOptions{Limit: 2, Progress: func(r Reading) { told = append(told, r) }})
		if err != nil || !slices.Equal(idsOf(letters), []string{"n1", "n0"}) || older != 3498 {
			t.Errorf("%v and %d older: %v", idsOf(letters), older, err)
		}
		if want := []Reading{{"push.dlq", 1000, 3500}, {"push.dlq", 2000, 3500}, {"push.dlq", 3000, 3500}}; !slices.Equal(told, want) {
			t.Errorf("told %v", told)
		}
	})
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues, f := twoLanes(3)
		l := f.queues["push"].letters
		l[0].FirstSeen, l[0].Detail = time.Now().Add(-time.Hour), "UNAVAILABLE"
		l[1].Providers = []string{"apns", "fcm"}
		l[2].Timestamp = time.Now().Add(-24 * time.Hour)
		f.queues["push"].marks[l[1].Place] = kafka.MarkOf(l[1], kafka.Dismissed, "me", time.Now())
		s, err := queues.Stats(t.Context(), StatsOptions{})
		if err != nil || s.Records != 4 || s.Open != 3 || s.Expired != 1 {
			t.Errorf("%+v: %v", s, err)
		}
		today, yesterday := time.Now().UTC().Format(time.DateOnly), time.Now().UTC().Add(-24*time.Hour).Format(time.DateOnly)
		for kind, want := range map[string][]Count{
			"lane":        {{"l", 3, 2, 1}, {"m", 1, 1, 0}},
			"reason":      {{"retries_used_up", 4, 3, 1}},
			"last_answer": {{"", 3, 2, 0}, {"UNAVAILABLE", 1, 1, 1}},
			"app":         {{"shop", 3, 2, 1}, {"bank", 1, 1, 0}},
			"sender":      {{"", 3, 2, 1}, {"s", 1, 1, 0}},
			"provider":    {{"", 3, 3, 1}, {"apns", 1, 0, 0}, {"fcm", 1, 0, 0}},
			"day":         {{today, 3, 2, 1}, {yesterday, 1, 1, 0}},
		} {
			if !slices.Equal(s.By[kind], want) {
				t.Errorf("by %s: %v, want %v", kind, s.By[kind], want)
			}
		}
		if len(s.By) != len(Kinds()) {
			t.Errorf("kinds %v", Kinds())
		}
		if s, err = queues.Stats(t.Context(), StatsOptions{Top: 1}); err != nil || len(s.By["app"]) != 1 || s.By["app"][0].Value != "shop" || s.By["day"][0].Value != today || s.Records != 4 {
			t.Errorf("the most frequent: %+v: %v", s, err)
		}
		f.closed(t)
	})
}

// By its ID, by its place, and by the ID that its place stands for.
func TestShow(t *testing.T) {
	queues, f := twoLanes(3)
	l := f.queues["push"].letters
	l[1].Value, l[1].Origin = []byte("no JSON: "+secret), "push/3/17"
	f.queues["push"].marks[l[2].Place] = kafka.MarkOf(l[2], kafka.Redriven, "me", time.Now())
	for _, tt := range []struct {
		why, word string
		want      []string
	}{
		{"an ID", "n0", []string{"push.dlq/0/0"}},
		{"the ID of one that is closed", "n2", []string{"push.dlq/0/2"}},
		{"another lane's", "m0", []string{"more.dlq/0/0"}},
		{"a place", "push.dlq/0/1", []string{"push.dlq/0/1"}},
		{"a place after the last", "push.dlq/0/3", nil},
		{"a partition that has none", "push.dlq/7/0", nil},
		{"the ID of a record without a usable one", push.PlaceID("push", 3, 17), []string{"push.dlq/0/1"}},
		{"no such ID", "n9", nil},
	} {
		views, err := queues.Show(t.Context(), tt.word, ShowOptions{})
		var places []string
		for _, v := range views {
			places = append(places, v.Place)
		}
		if err != nil || views == nil || !slices.Equal(places, tt.want) {
			t.Errorf("%s: %v: %v", tt.why, places, err)
		}
	}
	f.closed(t)
}

// Scripts depend on the keys, and nobody sees text or tokens unasked.
func TestLetterIsMaskedUnlessRevealed(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC)
	d := &kafka.DeadLetter{Place: kafka.Place{Partition: 1, Offset: 2}, Topic: "t.dlq", Timestamp: at, FirstSeen: at, Reason: "retries_used_up", Detail: "UNAVAILABLE", Origin: "t/0/5", Attempt: 3, Hops: 1, Redrive: 2,
		Devices: []string{"h"}, Providers: []string{"fcm"}, Key: []byte("u"), Value: []byte(`{"id":"n","app":"shop","user_id":"u","title":"` + secret + `"}`)}
	d.Headers = append(d.Headers, header("pf-hops", "1"), header("x-own", secret), header("pf-long", strings.Repeat("h", 600)))
	r := newRecord(&Lane{Name: "l", GreatestAge: time.Hour}, d, kafka.Marks{d.Place: {What: kafka.Redriven, At: at, By: "me", Timestamp: at, Origin: "t/0/5"}})
	const row = `"place":"t.dlq/1/2","time":"2026-11-21T08:30:00Z","lane":"l","id":"n","app":"shop","sender":"","type":"default","reason":"retries_used_up","detail":"UNAVAILABLE","providers":["fcm"],` +
		`"attempts":3,"hops":1,"redrives":2,"devices":["h"],"origin":"t/0/5","first_seen":"2026-11-21T08:30:00Z","expires_at":"2026-11-21T09:30:00Z","expired":false,` +
		`"mark":{"what":"redriven","at":"2026-11-21T08:30:00Z","by":"me"},"problem":""`
	long := `{"name":"pf-long","value":"` + strings.Repeat("h", 512) + `"}],`
	const fields = `"bytes":65,"fields":[{"name":"id","value":"n"},{"name":"app","value":"shop"},{"name":"user_id","value":"u"},{"name":"title","value":"\u003c17 characters\u003e"}]`
	const value = `,"value":"{\"id\":\"n\",\"app\":\"shop\",\"user_id\":\"u\",\"title\":\"Your code is 4711\"}"`
	const ids = `,"status_id":"n","key":"u",`
	for _, tt := range []struct {
		why, want string
		value     any
	}{
		{"a letter", `{` + row + `}`, r.letter(at, false)},
		{"revealed", `{` + row + value + `}`, r.letter(at, true)},
		{"a view", `{` + row + ids + `"headers":[{"name":"pf-hops","value":"1"},{"name":"x-own","value":"\u003c17 bytes\u003e"},` + long + fields + `}`, r.view(at, false)},
		{"a view, revealed", `{` + row + value + ids + `"headers":[{"name":"pf-hops","value":"1"},{"name":"x-own","value":"Your code is 4711"},` + long + fields + `}`, r.view(at, true)},
	} {
		if got, err := json.Marshal(tt.value); err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.why, err, got, tt.want)
		}
	}
	d.Key = []byte("a-token")
	if v := r.view(at, false); v.Key != "<7 bytes>" {
		t.Errorf("a key that is not the user's id: %q", v.Key)
	}
	d.Value = nil
	if v := newRecord(r.lane, d, nil); v.view(at, true).Value != nil || len(v.view(at, true).Fields) != 0 {
		t.Errorf("without a value: %+v", v.view(at, true))
	}
}

func TestDismiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues, f := twoLanes(600) // two groups
		q := f.queues["push"]
		q.letters[7].FirstSeen = time.Now().Add(-time.Hour)
		if v, err := queues.Dismiss(t.Context(), DismissOptions{Expired: true}); err != nil || !v.DryRun || v.Dismissed != 1 || len(q.marks) != 0 {
			t.Errorf("dry run: %+v, %d marked: %v", v, len(q.marks), err)
		}
		if v, err := queues.Dismiss(t.Context(), DismissOptions{Expired: true, Do: true, By: "me"}); err != nil || v.DryRun || v.Dismissed != 1 {
			t.Errorf("%+v: %v", v, err)
		}
		if m := q.marks[q.letters[7].Place]; m.What != kafka.Dismissed || m.By != "me" || !m.At.Equal(time.Now()) {
			t.Errorf("%+v", m)
		}
		// Who is interrupted knows what was done, and goes on from there.
		f.queues["more"].noted = context.Canceled
		v, err := queues.Dismiss(t.Context(), DismissOptions{Filter: Filter{Marked: true}, Do: true})
		if !errors.Is(err, context.Canceled) || v.Dismissed != 599 || len(q.marks) != 600 {
			t.Errorf("%+v, %d marked: %v", v, len(q.marks), err)
		}
		f.queues["more"].noted = nil
		if v, err = queues.Dismiss(t.Context(), DismissOptions{Do: true}); err != nil || v.Dismissed != 1 {
			t.Errorf("%+v: %v", v, err)
		}
		f.closed(t)
	})
}

func TestPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues, f := twoLanes(3)
		q := f.queues["push"]
		q.letters[2].Timestamp = time.Now().Add(time.Second)
		q.marks[q.letters[0].Place] = kafka.MarkOf(q.letters[0], kafka.Dismissed, "me", time.Now())
		first := PurgedPartition{Topic: "push.dlq", From: 0, To: 2, Records: 2, Open: 1}
		o := PurgeOptions{Lanes: []string{"l"}, Before: time.Now().Add(time.Second)}
		if v, err := queues.Purge(t.Context(), o); err != nil || !v.DryRun || v.Records != 2 || v.Open != 1 || !slices.Equal(v.Partitions, []PurgedPartition{first}) || len(q.letters) != 3 {
			t.Errorf("dry run: %+v, %d left: %v", v, len(q.letters), err)
		}
		o.Do = true
		if v, err := queues.Purge(t.Context(), o); err != nil || v.DryRun || v.Records != 2 || len(q.letters) != 1 {
			t.Errorf("%+v, %d left: %v", v, len(q.letters), err)
		}
		if v, err := queues.Purge(t.Context(), PurgeOptions{All: true, Do: true}); err != nil || v.Records != 2 || len(q.letters)+len(f.queues["more"].letters) != 0 {
			t.Errorf("all: %+v: %v", v, err)
		}
		if v, err := queues.Purge(t.Context(), PurgeOptions{All: true, Do: true}); err != nil || v.Partitions == nil || v.Records != 0 {
			t.Errorf("nothing: %+v: %v", v, err)
		}
		f.closed(t)
	})
}

// What is deleted is gone for good, so it is in the result whatever else fails.
func TestPurgeTellsWhatItDeletedBefore(t *testing.T) {
	queues, f := twoLanes(4)
	q := f.queues["push"]
	q.letters[2].Place, q.letters[3].Place = kafka.Place{Partition: 1}, kafka.Place{Partition: 1, Offset: 1}
	q.deleteCut = errors.New("refused")
	v, err := queues.Purge(t.Context(), PurgeOptions{All: true, Do: true})
	if !errors.Is(err, q.deleteCut) || v.Records != 2 || len(v.Partitions) != 1 || v.Partitions[0].Partition != 0 || len(q.letters) != 2 || len(f.queues["more"].letters) != 1 {
		t.Errorf("%+v, %d left: %v", v, len(q.letters), err)
	}
	f.closed(t)
}

// A deletion that was begun is waited for though ctx has ended; none is begun
// after.
func TestPurgeIsInterrupted(t *testing.T) {
	queues, f := twoLanes(4)
	ctx, interrupt := context.WithCancel(t.Context())
	f.queues["push"].after = interrupt
	v, err := queues.Purge(ctx, PurgeOptions{All: true, Do: true})
	if !errors.Is(err, context.Canceled) || v.Records != 4 || len(f.queues["push"].letters) != 0 || len(f.queues["more"].letters) != 1 {
		t.Errorf("%+v: %v", v, err)
	}
	if _, bounded := f.queues["push"].deleting.Deadline(); !bounded {
		t.Error("a deletion may take for ever")
	}
}

func TestFailuresArePassedOn(t *testing.T) {
	down := errors.New("nobody answers")
	q := New(oneLane, &fleet{down: down})
	ctx := t.Context()
	_, _, listed := q.List(ctx, ListOptions{})
	_, counted := q.Stats(ctx, StatsOptions{})
	_, shown := q.Show(ctx, "push.dlq/0/0", ShowOptions{})
	_, redriven := q.Redrive(ctx, RedriveOptions{Rate: 1, MaxRedrives: 1})
	_, dismissed := q.Dismiss(ctx, DismissOptions{})
	_, purged := q.Purge(ctx, PurgeOptions{All: true})
	for i, err := range []error{listed, counted, shown, redriven, dismissed, purged} {
		if !errors.Is(err, down) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}
