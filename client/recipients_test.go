package client

import (
	"reflect"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// Why a user got a message to a topic, or not, is said step by step, and when it may be asked
// again.
func TestWhyRecipient(t *testing.T) {
	w, store, c := crowdWorld(t)
	joined := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	for _, user := range []string{"a/ü", "waits"} {
		store.joins(t, "snow", user, subscriptions.Push, joined)
	}
	accepted, job := c.sent(w)
	id := fanout.ID(job.Message, "a/ü")
	w.row(id, "a/ü", push.Row{Device: "q83vASNFZ4mrze8B", State: push.StateFailed, Reason: "UNREGISTERED"})
	if err := c.notes.End(t.Context(), job.Message, job.To.PartOf("a/ü"), &fanout.Counts{Emitted: 1}); err != nil {
		t.Fatal(err)
	}
	why := func(user string) *Why {
		t.Helper()
		return twice(w, func() (*Why, error) { return w.client.WhyRecipient(t.Context(), accepted.Receipt, user) })
	}
	got := why("a/ü")
	if len(got.Steps) != 4 || got.Meaning == "" {
		t.Fatalf("%+v", got)
	}
	want := &Why{ID: accepted.ID, UserID: "a/ü", Notification: id, Status: "FAILED", Reason: "UNREGISTERED", Meaning: got.Meaning, Final: true, Steps: []Step{
		{Step: "message", State: "running", At: job.Accepted, Meaning: "accepted for the subscribers of topic snow, in lane transactional"},
		{Step: "subscription", State: "push", At: joined, Meaning: "had subscribed when the message was accepted"},
		{Step: "chunk", State: "done", Meaning: got.Steps[2].Meaning},
		{Step: "state", State: "FAILED", Reason: "UNREGISTERED", Device: "q83vASNFZ4mrze8B", At: w.rows[id][0].At, Meaning: got.Steps[3].Meaning},
	}}
	if !reflect.DeepEqual(got, want) || got.Steps[2].Meaning == "" || got.Steps[3].Meaning == "" {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if got := why("never"); got.Status != "NOT_SENT" || got.Reason != "not_subscribed" || got.Notification != "" || !got.Final || got.AskAgain != 0 {
		t.Errorf("who has not subscribed: %+v", got)
	}
	if got := why("waits"); got.Status != "PENDING" || got.Final || got.AskAgain < time.Second {
		t.Errorf("who waits: %+v", got)
	}
	w.refuses([]refusal{
		{"no such message", "no_receipt", func() error { return failed(w.client.WhyRecipient(t.Context(), "none", "u42")) }},
		{"a user that cannot be", "invalid_field", func() error { return failed(w.client.WhyRecipient(t.Context(), accepted.Receipt, "a\x00")) }},
	})
}
