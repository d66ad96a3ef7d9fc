package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// numbered are the numbers of users in their records.
type numbered struct {
	numbers map[string]uint32
	err     error
	asked   int
}

func (n *numbered) Fetch(_ context.Context, owners []string, out []*push.User) error {
	n.asked += len(owners)
	for i, owner := range owners {
		out[i].Profile.Number, out[i].Profile.HasNumber = n.numbers[owner], false
		if _, has := n.numbers[owner]; has {
			out[i].Profile.HasNumber = true
		}
	}
	return n.err
}

// segmentsOf has record/in by the numbers of records, id/in by ids, and hash/in by hashes.
func segmentsOf(t *testing.T, record, ids []uint32, hashed ...string) *segments.Set {
	t.Helper()
	var b segments.Builder
	var hashes []uint32
	for _, user := range hashed {
		number, _ := segments.ByHash.Of(user, 0, false)
		hashes = append(hashes, number)
	}
	err := errors.Join(b.AddGroup("record", true, segments.ByRecord), b.AddGroup("id", false, segments.ByID), b.AddGroup("hash", false, segments.ByHash),
		b.AddUsers("record", "in", segments.UsersOf(record...)), b.AddUsers("record", "nobody", segments.UsersOf()), b.AddUsers("id", "in", segments.UsersOf(ids...)), b.AddUsers("hash", "in", segments.UsersOf(hashes...)))
	if err != nil {
		t.Fatal(err)
	}
	set, err := b.Build(1, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Those users of the app are members who are in the segment by then, whatever the page, and
// nobody else; what is not known of the segment lets the chunk wait.
func TestUsersInASegment(t *testing.T) {
	members := audiences.NewMemory(nil)
	var uses []audiences.Use
	records := &numbered{numbers: map[string]uint32{}}
	var numbers, ids []uint32
	for i := range 500 {
		user := fmt.Sprint(1000 + i)
		uses = append(uses, audiences.Use{App: "shop", User: user})
		if i%2 == 0 { // the others have no number, and one with number 0 is in no segment either
			records.numbers[user] = uint32(7000 + i)
		}
		if i%100 == 0 {
			numbers, ids = append(numbers, uint32(7000+i), uint32(7001+i)), append(ids, uint32(1001+i))
		}
	}
	uses = append(uses, audiences.Use{App: "bank", User: "1001"}, audiences.Use{App: "shop", User: "no-number"})
	if _, err := members.Add(t.Context(), uses); err != nil {
		t.Fatal(err)
	}
	set := segmentsOf(t, append(numbers, 0), ids, "1003", "no-number")
	a := WithSegments(kindsOfAudiences{fanout.OfApp: AppAudience(members)}, func() *segments.Set { return set }, records)
	all := func(name string, parts, limit int) map[string]bool {
		t.Helper()
		got := map[string]bool{}
		j := &fanout.Job{App: "shop", To: fanout.To{Kind: fanout.OfSegment, Name: name, Parts: parts}}
		for part := range parts {
			for after := ""; ; {
				page, err := a.Page(t.Context(), j, part, after, limit)
				if err != nil || len(page) > limit {
					t.Fatalf("%s: %d, %v", name, len(page), err)
				}
				if len(page) == 0 {
					break
				}
				for i, m := range page {
					if after = m.User; m.Passed && i == len(page)-1 {
						continue
					}
					if m.Passed || got[m.User] || j.To.PartOf(m.User) != part || m.Since.IsZero() {
						t.Fatalf("%s: %+v again, or of another part", name, m)
					}
					got[m.User] = true
				}
			}
		}
		if j.To.Kind != fanout.OfSegment || j.To.Name != name {
			t.Errorf("the job became %+v", j.To)
		}
		return got
	}
	for _, of := range []struct{ parts, limit int }{{1, 1}, {1, 1000}, {16, 7}} {
		if got := all("record/in", of.parts, of.limit); len(got) != 5 || !got["1000"] || !got["1400"] {
			t.Errorf("%+v, by record: %v", of, got)
		}
		asked := records.asked
		if got := all("id/in", of.parts, of.limit); len(got) != 5 || !got["1001"] || !got["1401"] {
			t.Errorf("%+v, by id: %v", of, got)
		}
		if got := all("hash/in", of.parts, of.limit); len(got) != 2 || !got["1003"] || !got["no-number"] {
			t.Errorf("%+v, by hash: %v", of, got)
		}
		if got := all("record/nobody", of.parts, of.limit); len(got) != 0 {
			t.Errorf("%+v, nobody: %v", of, got)
		}
		if of.limit == 1000 && records.asked-asked != 501 {
			t.Errorf("%d records were read for what needs those of 501", records.asked-asked)
		}
	}
	wants := func(why, kind, name string, want error) {
		t.Helper()
		if _, err := a.Page(t.Context(), &fanout.Job{App: "shop", To: fanout.To{Kind: kind, Name: name, Parts: 1}}, 0, "", 10); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", why, err, want)
		}
	}
	wants("a segment that is gone", fanout.OfSegment, "record/gone", fanout.ErrNoAudience)
	wants("a group that is gone", fanout.OfSegment, "gone/in", fanout.ErrNoAudience)
	wants("all users", fanout.OfApp, "shop", nil)
	wants("another kind", fanout.OfTopic, "news", fanout.ErrNoAudience)
	records.err = errors.New("redis is away")
	wants("Redis is away", fanout.OfSegment, "record/in", fanout.ErrNoAudience)
	wants("Redis is away", fanout.OfSegment, "record/in", records.err)
	wants("Redis is away, and not needed", fanout.OfSegment, "id/in", nil)
	members.Fail(errors.New("no hosts available"))
	if _, err := a.Page(t.Context(), &fanout.Job{App: "shop", To: fanout.To{Kind: fanout.OfSegment, Name: "id/in", Parts: 1}}, 0, "", 10); err == nil || errors.Is(err, fanout.ErrNoAudience) {
		t.Errorf("Cassandra is away: %v", err)
	}
}

// audienceOf is the audience of segments where these users use the app shop.
func audienceOf(t *testing.T, set *segments.Set, records UserRecords, users ...string) fanout.Audience {
	t.Helper()
	members := audiences.NewMemory(nil)
	for _, user := range users {
		if _, err := members.Add(t.Context(), []audiences.Use{{App: "shop", User: user}}); err != nil {
			t.Fatal(err)
		}
	}
	return WithSegments(kindsOfAudiences{fanout.OfApp: AppAudience(members)}, func() *segments.Set { return set }, records)
}

// Where few are in a segment a page still ends: between two of them it is looked whether the
// message is paused or the process stops, and a part that had to wait goes on behind what
// was read. Else one whose numbers cannot be read now and then would begin anew for ever.
func TestAPartWithNobodyInTheSegmentIsReadPageByPage(t *testing.T) {
	var users []string
	for i := range 100 {
		users = append(users, fmt.Sprint("u", i))
	}
	records := &numbered{}
	a := audienceOf(t, segmentsOf(t, []uint32{7}, nil), records, users...)
	j := &fanout.Job{App: "shop", To: fanout.To{Kind: fanout.OfSegment, Name: "record/in", Parts: 1}}
	after, pages := "", 0
	for ; pages < 20; pages++ {
		before := records.asked
		page, err := a.Page(t.Context(), j, 0, after, 10)
		if err != nil || records.asked > before+10 {
			t.Fatalf("%d users were asked for in a page of 10, %v", records.asked-before, err)
		}
		if len(page) == 0 {
			break
		}
		if len(page) != 1 || !page[0].Passed {
			t.Fatalf("%+v", page)
		}
		after = page[0].User
	}
	if pages != 10 || records.asked != 100 {
		t.Errorf("%d pages, %d users were asked for", pages, records.asked)
	}
}

// Whose time has ended does not put a chunk aside that is another process's by then.
func TestAnEndedContextIsNotAnUnknownAudience(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := audienceOf(t, segmentsOf(t, []uint32{7}, nil), fetch(func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	}), "u1")
	_, err := a.Page(ctx, &fanout.Job{App: "shop", To: fanout.To{Kind: fanout.OfSegment, Name: "record/in", Parts: 1}}, 0, "", 10)
	if !errors.Is(err, context.Canceled) || errors.Is(err, fanout.ErrNoAudience) {
		t.Errorf("%v", err)
	}
}

// fetch is a UserRecords that only fails.
type fetch func(context.Context) error

func (f fetch) Fetch(ctx context.Context, _ []string, _ []*push.User) error { return f(ctx) }

// The whole way of a process: it has read the file of segments, and sends to those users of
// the app alone who are in one. Nobody has to be asked for numbers that are ids.
func TestFanoutToASegment(t *testing.T) {
	c := configs.Default()
	fanoutKafka(t, c)
	c.Gateway.Audiences, c.Segments.Source = true, filepath.Join(t.TempDir(), "segments")
	if err := segments.WriteFile(c.Segments.Source, segmentsOf(t, nil, []uint32{1003, 1077, 1100, 5000})); err != nil {
		t.Fatal(err)
	}
	members, now := audiences.NewMemory(nil), time.Now().UTC().Truncate(time.Millisecond)
	for i := range 200 {
		if _, err := members.Add(t.Context(), []audiences.Use{{App: "shop", User: fmt.Sprint(1000 + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	notes := newTellingNotes()
	o := FanoutOptions{Config: c, Log: options(c, io.Discard).Log, Metrics: options(c, io.Discard).Metrics, OpenStores: func(context.Context) (FanoutStores, error) {
		return FanoutStores{Notes: notes, Audience: kindsOfAudiences{fanout.OfApp: AppAudience(members)}, Ping: func(context.Context) error { return nil }, Close: func() {}}, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunFanout(ctx, o) }()
	message, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	job := &fanout.Job{Message: message, Sender: "shop", App: "shop", ServiceType: "promotional", Lane: "promotional", Topic: "push.promotional", Partitions: 3,
		Accepted: now.Add(time.Second), Expires: now.Add(time.Hour), Campaign: message.String(), Priority: push.High,
		To: fanout.To{Kind: fanout.OfSegment, Name: "id/in", Parts: 16}, Rest: []byte(`"sender_id":"shop","app":"shop","title":"Snow"}`)}
	if p := worked(t, c, notes, job); p.Emitted != 3 || len(p.ByReason()) != 0 || p.Job.To != job.To {
		t.Errorf("%+v", p)
	}
	if got := receivers(t, c, job, 3); got["1003"] == "" || got["1077"] == "" || got["1100"] == "" {
		t.Errorf("%v", got)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// A process that cannot begin ends, and what watches its stores with it.
func TestFanoutThatCannotBegin(t *testing.T) {
	c := configs.Default()
	fanoutKafka(t, c)
	c.Gateway.Fanout.AtOnce = -1 // which no file can say
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	err := RunFanout(ctx, FanoutOptions{Config: c, Log: options(c, io.Discard).Log, Metrics: options(c, io.Discard).Metrics, OpenStores: func(context.Context) (FanoutStores, error) {
		return FanoutStores{Notes: newTellingNotes(), Ping: func(context.Context) error { return nil }, Close: func() {}}, nil
	}})
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "-1 at once") {
		t.Errorf("ended with %v, and %v", err, ctx.Err())
	}
}

// A gateway reads which segments there are, and takes messages to those alone.
func TestAGatewayKnowsSegments(t *testing.T) {
	c := configs.Default()
	fanoutKafka(t, c)
	c.Gateway.Topics, c.Gateway.Audiences, c.Segments.Source = true, true, filepath.Join(t.TempDir(), "segments")
	c.Apps = append(c.Apps, configs.App{Name: "shop"})
	gatewayFiles(t, c)
	if err := segments.WriteFile(c.Segments.Source, segmentsOf(t, nil, []uint32{1003})); err != nil {
		t.Fatal(err)
	}
	o := gatewayOptions(c)
	subscribed, _ := subscribers(t, subscriptions.Small, 1, time.Now())
	members := audiences.NewMemory(nil)
	if _, err := members.Add(t.Context(), []audiences.Use{{App: "shop", User: "1003"}, {App: "shop", User: "1004"}}); err != nil {
		t.Fatal(err)
	}
	notes := fanout.NewMemory()
	o.Topics, o.Fanouts, o.AppUsers = subscribed, notes, members
	rows, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		t.Fatal(err)
	}
	o.OpenStatus = func(context.Context, status.Options) (Status, error) { return &closedStore{Memory: rows}, nil }
	at := make(chan net.Addr, 1)
	o.Listening = func(a net.Addr) { at <- a }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunGateway(ctx, o) }()
	client, url := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+(<-at).String()
	send := func(segment string) *reply {
		t.Helper()
		for {
			a, err := call(t, client, "POST", url+"/v1/apps/shop/segments/"+segment+"/messages", `{"service_type": "promotional", "title": "Snow"}`)
			if err != nil {
				t.Fatal(err)
			}
			if a.status != http.StatusServiceUnavailable { // not read yet
				return a
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if a := send("id/gone"); a.status != http.StatusNotFound || parsed(t, a.text)["code"] != "no_such_segment" {
		t.Errorf("%+v", a)
	}
	a := send("id/in")
	if a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	// Of who is in it the gateway knows nothing: those count who have a state.
	receipt := parsed(t, a.text)["receipt"].(string)
	id, _, _ := strings.Cut(receipt, "~")
	job := &fanout.Job{Message: fanout.MessageOf(uuid.MustParse(id), "orders", "shop", "segment/id/in"), Sender: "orders", App: "shop", ServiceType: "promotional", Lane: "promotional",
		Topic: "push.promotional", Partitions: 3, Accepted: time.Now().Add(time.Minute), Expires: time.Now().Add(time.Hour), Priority: push.High,
		To: fanout.To{Kind: fanout.OfSegment, Name: "id/in", Parts: 1}, Rest: []byte(`"sender_id":"orders","app":"shop","title":"Snow"}`)}
	if _, err := notes.Begin(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(notes.End(t.Context(), job.Message, 0, &fanout.Counts{Emitted: 1}),
		rows.Write(t.Context(), []push.Row{{ID: fanout.ID(job.Message, "1003"), State: push.StateDelivered, At: time.Now(), UserHash: push.UserHash("1003")}})); err != nil {
		t.Fatal(err)
	}
	counted, err := call(t, client, "GET", url+"/v1/messages/"+receipt+"/counts", "")
	if err != nil || counted.status != http.StatusOK || fmt.Sprint(parsed(t, counted.text)["states"]) != "map[DELIVERED:1]" {
		t.Errorf("%+v, %v", counted, err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
