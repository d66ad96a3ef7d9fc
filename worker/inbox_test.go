package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users"
)

// openInbox is an inbox in memory that outlives the workers that open it.
type openInbox struct{ *inbox.Memory }

func (openInbox) Close() {}

// deafStore takes no rows for a while.
type deafStore struct {
	*closedStore
	now *atomic.Bool
}

// Write implements pipeline.Status.
func (s deafStore) Write(ctx context.Context, rows []push.Row) error {
	if s.now.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.closedStore.Write(ctx, rows)
}

// kept are the ids in a user's inbox of the shop.
func kept(t *testing.T, m *inbox.Memory, user string) (ids []string) {
	t.Helper()
	page, _, err := m.Page(t.Context(), inbox.Key{User: user, App: "shop"}, nil, inbox.Top(time.Now()), inbox.MaxPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page {
		ids = append(ids, e.ID)
	}
	return ids
}

// A whole worker keeps what users without a device, or who are not active, would get, and
// their notifications end INBOX, once: also when the record comes again, the store is away
// for a while, and the worker dies between the entry and the row. All others get pushes.
func TestMessagesAreKeptForUsersWhoLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nightConfig()
		c.Lanes[0].Inbox, c.Lanes[0].InboxAfter = true, 30*24*time.Hour
		n := newNight(t, apnsApp(t, c, "shop"), c)
		defer n.close()
		store := inbox.NewMemory(nil)
		n.options.OpenInboxes = func(context.Context, status.Options) (Inboxes, error) { return openInbox{store}, nil }
		now := time.Now()
		n.users(func(client *users.Client) error {
			for user, active := range map[string]time.Duration{"idle": 31 * 24 * time.Hour, "active": 29 * 24 * time.Hour, "unknown": 0} {
				token := fmt.Sprintf("%064x", user)
				if _, err := client.RegisterDevice(t.Context(), user, push.Device{Platform: push.APNS, Environment: push.Production, App: "shop", Token: token, RegisteredAt: now.Add(-time.Hour)}); err != nil {
					return err
				}
				if active == 0 {
					continue
				}
				if err := client.SetProfile(t.Context(), user, push.Profile{LastActivity: now.Add(-active).UTC().Truncate(time.Millisecond)}); err != nil {
					return err
				}
			}
			return client.SetPreferences(t.Context(), "left", push.Preferences{OptOutAll: true})
		})
		stop := n.worker()
		time.Sleep(time.Minute)
		n.produce("bare", "nodevice", nil)
		n.produce("bare", "nodevice", nil) // a producer's repeat
		n.produce("silent", "nodevice", map[string]any{"title": "", "push_type": "background", "data": map[string]string{"k": "v"}})
		n.produce("opted-out", "left", nil)
		n.produce("idle", "idle", nil)
		n.produce("urgent", "idle", map[string]any{"priority": "critical"})
		n.produce("active", "active", nil)
		n.produce("unknown", "unknown", nil)
		time.Sleep(10 * time.Second)
		n.hasBecome("bare", 0, "INBOX no_device")
		n.hasBecome("silent", 0, "SUPPRESSED no_device")
		n.hasBecome("opted-out", 0, "SUPPRESSED opted_out_all")
		n.hasBecome("idle", 0, "INBOX inactive")
		n.hasBecome("urgent", 1, "DELIVERED")
		n.hasBecome("active", 1, "DELIVERED")
		n.hasBecome("unknown", 1, "DELIVERED")

		// The store is away: the batch waits, nothing is lost, and nothing is a failure.
		store.Fail(errors.New("away"))
		n.produce("waits", "nodevice", nil)
		time.Sleep(time.Minute)
		n.hasBecome("waits", 0)
		// The worker stops meanwhile, and the next one finds the record again.
		stop()
		store.Fail(nil)
		stop = n.worker()
		time.Sleep(time.Minute)
		n.hasBecome("waits", 0, "INBOX no_device")
		stop()
		if got := fmt.Sprint(kept(t, store, "nodevice"), kept(t, store, "idle"), kept(t, store, "active"), kept(t, store, "left")); got != "[waits bare] [idle] [] []" {
			t.Errorf("kept %s", got)
		}
	})
}

// An entry whose row is missing, because the worker died between the two, is written again
// as the same one.
func TestAnEntryWithoutItsRowIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		c.Kafka.JoinWithin, c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 0, 1, 1
		c.Dedupe.Capacity, c.Registry.CheckInterval = 100_000, 10*time.Minute
		c.Admin.Listen, c.Registry.Listen = "", ""
		c.Lanes = c.Lanes[1:2]
		c.Lanes[0].Inbox = true
		n := newNight(t, apnsApp(t, c, "shop"), c)
		defer n.close()
		store := inbox.NewMemory(nil)
		n.options.OpenInboxes = func(context.Context, status.Options) (Inboxes, error) { return openInbox{store}, nil }
		deaf := deafStore{n.store, new(atomic.Bool)}
		n.options.OpenStatus = func(context.Context, status.Options) (Status, error) { return deaf, nil }
		deaf.now.Store(true)
		stop := n.worker()
		time.Sleep(time.Minute)
		n.produce("half", "nodevice", nil)
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(kept(t, store, "nodevice")); got != "[half]" {
			t.Errorf("before its row: %s", got)
		}
		stop()
		deaf.now.Store(false)
		stop = n.worker()
		time.Sleep(time.Minute)
		n.hasBecome("half", 0, "INBOX no_device")
		stop()
		if got := fmt.Sprint(kept(t, store, "nodevice")); got != "[half]" {
			t.Errorf("kept %s", got)
		}
	})
}
