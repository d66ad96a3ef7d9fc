package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// turning calls do before the nth page.
type turning struct {
	fanout.Audience
	mu    sync.Mutex
	pages int // guarded by mu
	do    func(page int)
}

func (a *turning) Page(ctx context.Context, j *fanout.Job, part int, after string, limit int) ([]fanout.Member, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pages++
	a.do(a.pages)
	return a.Audience.Page(ctx, j, part, after, limit)
}

// The whole way on a broker: a message to all users of an app becomes a record of the lane
// for each of them, but for those who were noted after it was accepted, or are erased before
// their page is read.
func TestFanoutToAllUsersOfAnApp(t *testing.T) {
	c := configs.Default()
	fanoutKafka(t, c)
	c.Gateway.Fanout.OpenChunks = 1 // part by part
	now := time.Now().UTC().Truncate(time.Millisecond)
	at := now.Add(-time.Hour)
	var mu sync.Mutex
	members := audiences.NewMemory(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return at
	})
	var uses []audiences.Use
	for i := range 200 {
		uses = append(uses, audiences.Use{App: "shop", User: fmt.Sprint("u", i), At: at}, audiences.Use{App: "bank", User: fmt.Sprint("b", i), At: at})
	}
	if _, err := members.Add(t.Context(), uses); err != nil {
		t.Fatal(err)
	}
	const parts = 16
	to := fanout.To{Kind: fanout.OfApp, Name: "shop", Parts: parts}
	last := "" // one of the last part
	for i := range 200 {
		if user := fmt.Sprint("u", i); to.PartOf(user) == parts-1 {
			last = user
		}
	}
	newcomer := ""
	for i := 0; newcomer == ""; i++ {
		if user := fmt.Sprint("new", i); to.PartOf(user) == parts-1 {
			newcomer = user
		}
	}
	a := &turning{Audience: kindsOfAudiences{fanout.OfApp: AppAudience(members)}, do: func(page int) {
		if page != 3 {
			return
		}
		mu.Lock()
		at = now.Add(time.Minute)
		mu.Unlock()
		if err := members.Forget(context.Background(), last, []string{"shop"}); err != nil {
			t.Error(err)
		}
		if _, err := members.Add(context.Background(), []audiences.Use{{App: "shop", User: newcomer, At: now}}); err != nil {
			t.Error(err)
		}
	}}
	notes := newTellingNotes()
	o := FanoutOptions{Config: c, Log: options(c, io.Discard).Log, Metrics: options(c, io.Discard).Metrics, OpenStores: func(context.Context) (FanoutStores, error) {
		return FanoutStores{Notes: notes, Audience: a, Ping: func(context.Context) error { return nil }, Close: func() {}}, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunFanout(ctx, o) }()
	message, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	job := &fanout.Job{Message: message, Sender: "shop", App: "shop", ServiceType: "promotional", Lane: "promotional", Topic: "push.promotional", Partitions: 3,
		Accepted: now, Expires: now.Add(time.Hour), Campaign: message.String(), Priority: push.High, To: to, Rest: []byte(`"sender_id":"shop","app":"shop","title":"Snow"}`)}
	p := worked(t, c, notes, job)
	if by := p.ByReason(); p.Emitted != 199 || by["later"] != 1 || len(by) != 1 {
		t.Errorf("%+v", p)
	}
	got := receivers(t, c, job, 199)
	if got[last] != "" || got[newcomer] != "" || got["b1"] != "" {
		t.Error("one got it who is erased, came later or uses another app")
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// worked writes a job, as a gateway does, and waits until all its parts have ended.
func worked(t *testing.T, c *configs.Config, notes *tellingNotes, job *fanout.Job) *fanout.Progress {
	t.Helper()
	value, err := fanout.EncodeJob(job)
	if err != nil {
		t.Fatal(err)
	}
	w, err := kafka.NewWriter(kafka.Options{Brokers: c.Kafka.Brokers}, kafka.WriterOptions{Topic: fanout.JobsTopic})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Append(t.Context(), []kafka.Record{{Key: job.Message[:], Value: value}}); err != nil {
		t.Fatal(err)
	}
	late := time.After(time.Minute)
	for {
		select {
		case <-notes.ended:
		case <-late:
			t.Fatal("not worked on within a minute")
		}
		if p, err := notes.Look(t.Context(), job.Message); err != nil || p != nil && len(p.Ended) == job.To.Parts {
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
}

// tellingNotes tell whenever a part has ended, until somebody looks.
type tellingNotes struct {
	*fanout.Memory
	ended chan struct{} // capacity 1; never closed
}

func newTellingNotes() *tellingNotes {
	return &tellingNotes{fanout.NewMemory(), make(chan struct{}, 1)}
}

// End implements fanout.Notes.
func (n *tellingNotes) End(ctx context.Context, message uuid.UUID, part int, c *fanout.Counts) error {
	err := n.Memory.End(ctx, message, part, c)
	select {
	case n.ended <- struct{}{}:
	default:
	}
	return err
}

// receivers are whose notifications a job's lane has, n of them, with their ids.
func receivers(t *testing.T, c *configs.Config, job *fanout.Job, n int) map[string]string {
	t.Helper()
	follower, err := kafka.NewFollower(kafka.Options{Brokers: c.Kafka.Brokers}, job.Topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	got := make(map[string]string)
	for len(got) < n {
		records, err := follower.Poll(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			var m push.Message
			if d := decode.Message(r.Value, &m); d != nil || got[m.UserID] != "" || m.ID != fanout.ID(job.Message, m.UserID) || m.App != job.App {
				t.Fatalf("%s: %v", r.Value, d)
			}
			got[m.UserID] = m.ID
		}
	}
	return got
}

// The audience of a kind is asked of the kind's own, and of nobody if there is none: the
// chunk waits.
func TestKindsOfAudiences(t *testing.T) {
	away := errors.New("no hosts available")
	members := audiences.NewMemory(nil)
	if _, err := members.Add(t.Context(), []audiences.Use{{App: "shop", User: "ada"}}); err != nil {
		t.Fatal(err)
	}
	k := kindsOfAudiences{fanout.OfApp: AppAudience(members)}
	job := func(kind string) *fanout.Job { return &fanout.Job{To: fanout.To{Kind: kind, Name: "shop", Parts: 1}} }
	if page, err := k.Page(t.Context(), job(fanout.OfApp), 0, "", 5000); err != nil || len(page) != 1 || page[0].User != "ada" || page[0].Since.IsZero() {
		t.Errorf("%+v, %v", page, err)
	}
	for _, kind := range []string{fanout.OfTopic, "segment", ""} {
		if _, err := k.Page(t.Context(), job(kind), 0, "", 1); !errors.Is(err, fanout.ErrNoAudience) {
			t.Errorf("%q: %v", kind, err)
		}
	}
	members.Fail(away)
	if _, err := k.Page(t.Context(), job(fanout.OfApp), 0, "", 1); !errors.Is(err, away) || errors.Is(err, fanout.ErrNoAudience) {
		t.Errorf("%v", err)
	}
}
