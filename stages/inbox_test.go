package stages_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// someInboxes fail for these ids.
type someInboxes struct {
	written []inbox.Addressed
	failing []string
}

func (s *someInboxes) Put(_ context.Context, entries []inbox.Addressed) []error {
	errs := make([]error, len(entries))
	for i, e := range entries {
		if slices.Contains(s.failing, e.ID) {
			errs[i] = errors.New("away")
			continue
		}
		s.written = append(s.written, e)
	}
	return errs
}

// What is kept, and what is not: each is decided by what is known of its user.
func TestInboxKeeps(t *testing.T) {
	phone := []push.Device{{Platform: push.APNS, App: "shop", Token: "aa", Hash: "d1", RegisteredAt: hour.Add(-time.Hour)}}
	user := func(idle time.Duration, devices ...push.Device) *push.User {
		u := &push.User{Devices: devices}
		if idle > 0 {
			u.Profile.LastActivity = time.Now().Add(-idle)
		}
		return u
	}
	const after = 24 * time.Hour
	for _, tt := range []struct {
		why  string
		edit func(*pipeline.Item)
		want string
	}{
		{"no device", func(it *pipeline.Item) {}, "kept no_device"},
		{"no device, and active", func(it *pipeline.Item) { it.User = user(time.Hour) }, "kept no_device"},
		{"a device, and active", func(it *pipeline.Item) { it.User = user(time.Hour, phone...) }, "undecided "},
		{"a device, and not active", func(it *pipeline.Item) { it.User = user(25*time.Hour, phone...) }, "kept inactive"},
		{"of whom nothing is known", func(it *pipeline.Item) { it.User = user(0, phone...) }, "undecided "},
		{"what is critical is pushed", func(it *pipeline.Item) { it.User, it.Priority = user(25*time.Hour, phone...), push.Critical }, "undecided "},
		{"what is critical is kept where there is no device", func(it *pipeline.Item) { it.Priority = push.Critical }, "kept no_device"},
		{"a retry is finished", func(it *pipeline.Item) {
			it.User, it.Attempt, it.Devices = user(25*time.Hour, phone...), 1, []string{"d1"}
		}, "undecided "},
		{"a device was tried before", func(it *pipeline.Item) {
			it.User, it.History = user(25*time.Hour, append(phone, push.Device{Platform: push.APNS, App: "shop", Token: "bb", Hash: "d2", RegisteredAt: hour.Add(-time.Hour)})...), push.NewHistory([]push.Row{row("x", "d1", 0, push.StateDelivered)})
		}, "undecided "},
		{"a bare device has no inbox", func(it *pipeline.Item) {
			it.UserID, it.Message.Device = "", push.Target{Platform: push.APNS, Token: strings.Repeat("ab", 32)}
		}, "undecided "},
		{"a device of a user's that is named", func(it *pipeline.Item) {
			it.User, it.Message.Device = user(25*time.Hour), push.Target{Platform: push.APNS, Token: strings.Repeat("ab", 32)}
		}, "undecided "},
		{"opted out of the channel", func(it *pipeline.Item) {
			it.User = user(25*time.Hour, phone...)
			it.User.Preferences.Channels = []string{push.ChannelPush}
		}, "suppressed opted_out_channel"},
		{"decided before", func(it *pipeline.Item) { it.Verdict, it.Reason = push.Expired, push.TooOld }, "expired past_greatest_age"},
		{"nothing to read", func(it *pipeline.Item) { it.Title = "" }, "suppressed no_device"},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("x", func(it *pipeline.Item) {
			it.Title = "News"
			tt.edit(it)
		})}}
		s := &someInboxes{}
		for _, stage := range []pipeline.Stage{&stages.Devices{}, &stages.Inbox{Inboxes: s, Lane: "bulk", After: after}} {
			if err := stage.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		it := &b.Items[0]
		if got := fmt.Sprint(it.Verdict, " ", it.Reason); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		}
		kept := it.Verdict == push.Kept
		if kept != (len(s.written) == 1) || kept && len(it.Deliveries) > 0 {
			t.Errorf("%s: %d written, %d deliveries left", tt.why, len(s.written), len(it.Deliveries))
		}
	}
}

// The notification of a confidential message ends like others, without an entry: its text is
// in the inbox already, by the topic.
func TestANoticeIsNoEntry(t *testing.T) {
	s := &someInboxes{}
	b := &pipeline.Batch{}
	notices := map[string]string{"notice": inbox.NoticeData, "with a click token": `{"pf_click":"t",` + inbox.NoticeData[1:]}
	others := map[string]string{"a value": `{"k":"pf_confidential"}`, "more data": `{"order":"17",` + inbox.NoticeData[1:], "more behind a token": `{"pf_click":"t","order":"17",` + inbox.NoticeData[1:],
		"another value": `{"pf_confidential":"yes"}`, "no data": ``}
	for _, list := range []map[string]string{notices, others} {
		for id, data := range list {
			b.Items = append(b.Items, item(id, func(it *pipeline.Item) { it.Title, it.Data = "New message", []byte(data) }))
		}
	}
	b.Items = append(b.Items, item("a text", func(it *pipeline.Item) { it.Title, it.Body, it.Data = "Your code", "is 4711", []byte(inbox.NoticeData) }))
	for _, stage := range []pipeline.Stage{&stages.Devices{}, &stages.Inbox{Inboxes: s, Lane: "bulk"}} {
		if err := stage.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	for i := range b.Items {
		if it := &b.Items[i]; it.Verdict != push.Kept || it.Reason != push.NoDevice {
			t.Errorf("%s: %v %s", it.ID, it.Verdict, it.Reason)
		}
	}
	for _, e := range s.written {
		if _, is := notices[e.ID]; is {
			t.Errorf("%s is written", e.ID)
		}
	}
	if len(s.written) != len(others)+1 {
		t.Errorf("%d are written", len(s.written))
	}
}

// What could not be written is not decided, and alone written when the stage is repeated:
// as the same entry.
func TestInboxWaitsForItsStore(t *testing.T) {
	s := &someInboxes{failing: []string{"b"}}
	stage := &stages.Inbox{Inboxes: s, Lane: "bulk"}
	b := &pipeline.Batch{}
	for _, id := range []string{"a", "b", "c"} {
		b.Items = append(b.Items, item(id, func(it *pipeline.Item) {
			it.Title, it.Body, it.SenderID, it.Type, it.Priority = "News", "of "+id, "orders", "news", push.Low
			it.Data, it.ExpiresAt = []byte(`{"k": "v"}`), hour.Add(48*time.Hour)
		}))
	}
	if err := (&stages.Devices{}).Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := stage.Apply(t.Context(), b); err == nil || !strings.Contains(err.Error(), "writing inboxes: away") {
		t.Errorf("one cannot be written: %v", err)
	}
	if v := b.Items[1].Verdict; v != push.Suppressed || len(s.written) != 2 {
		t.Errorf("%v, %d written", v, len(s.written))
	}
	s.failing = nil
	for range 2 {
		if err := stage.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.written) != 3 {
		t.Errorf("%d were written", len(s.written))
	}
	want := inbox.Addressed{Key: inbox.Key{User: "u1", App: "shop"}, Entry: inbox.Entry{Position: inbox.PositionOf("b", hour), Type: "news", Lane: "bulk",
		Sender: "orders", Priority: push.Low, Content: []byte(`{"title":"News","body":"of b","data":{"k":"v"}}`), Expires: hour.Add(48 * time.Hour)}}
	if got := s.written[2]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}
