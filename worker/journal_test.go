package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users"
)

// openJournal is a journal in memory that outlives the workers that open it.
type openJournal struct{ *journal.Memory }

func (openJournal) Close() {}

// noted are a user's messages in a journal, the newest first.
func noted(t *testing.T, m *journal.Memory, user string) (ids []string) {
	t.Helper()
	now := time.Now()
	page, _, err := m.Page(t.Context(), &journal.Question{User: user, Apps: []string{"shop"}, Since: now.Add(-48 * time.Hour), Behind: journal.Top(now), Limit: journal.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page {
		ids = append(ids, e.ID)
	}
	return ids
}

// A whole worker notes each notification of a user once, also one that is not sent, before
// anything is sent: while journals are away nobody gets anything, and then everybody does.
func TestMessagesAreFoundByUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		c.Kafka.JoinWithin, c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 0, 1, 1
		c.Dedupe.Capacity, c.Registry.CheckInterval = 100_000, 10*time.Minute
		c.Admin.Listen, c.Registry.Listen = "", ""
		c.Lanes = c.Lanes[1:2]
		c.Lanes[0].Journal = 48 * time.Hour
		n := newNight(t, apnsApp(t, c, "shop"), c)
		defer n.close()
		store := journal.NewMemory()
		n.options.OpenJournals = func(context.Context, status.Options) (Journals, error) { return openJournal{store}, nil }
		n.users(func(client *users.Client) error {
			_, err := client.RegisterDevice(t.Context(), "ada", push.Device{Platform: push.APNS, Environment: push.Production, App: "shop", Token: fmt.Sprintf("%064x", "ada"), RegisteredAt: time.Now().Add(-time.Hour)})
			if err != nil {
				return err
			}
			return client.SetPreferences(t.Context(), "ben", push.Preferences{OptOutAll: true})
		})
		stop := n.worker()
		time.Sleep(time.Minute)
		n.produce("first", "ada", nil)
		time.Sleep(time.Second)
		n.produce("first", "ada", nil) // a producer's repeat
		n.produce("second", "ada", nil)
		n.produce("refused", "ben", nil)
		time.Sleep(10 * time.Second)
		n.hasBecome("second", 1, "DELIVERED")
		n.hasBecome("refused", 0, "SUPPRESSED opted_out_all")

		store.Fail(errors.New("away"))
		n.produce("waits", "ada", nil)
		time.Sleep(time.Minute)
		n.hasBecome("waits", 0)
		stop() // and the next worker finds the record again
		store.Fail(nil)
		stop = n.worker()
		time.Sleep(time.Minute)
		n.hasBecome("waits", 1, "DELIVERED")
		stop()
		if got := fmt.Sprint(noted(t, store, "ada"), noted(t, store, "ben"), noted(t, store, "cy")); got != "[waits second first] [refused] []" {
			t.Errorf("noted %s", got)
		}
	})
}

// A lane that does not ask for it notes nothing, and neither do its retries where it does.
func TestWhoNotesMessages(t *testing.T) {
	g := &group{}
	if g.journal(configs.Lane{Name: "bulk"}, false) != nil || g.journal(configs.Lane{Name: "bulk", Journal: time.Hour}, true) != nil {
		t.Error("a stage of a lane without a journal, or of retries")
	}
	if s := g.journal(configs.Lane{Name: "bulk", Journal: 48 * time.Hour}, false); s == nil || s.Lane != "bulk" || s.Kept != 48*time.Hour {
		t.Errorf("%+v", s)
	}
}
