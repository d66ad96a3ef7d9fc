package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/rightstest"
	"github.com/pushfleet/pushfleet/worker"
)

// lawfulKafka is a Kafka that allows each role what Rights says, with all topics.
func lawfulKafka(t *testing.T, c *configs.Config, more ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster := rightstest.Start(t, c, more...)
	for _, s := range append(wiring.Topics(c), wiring.FanoutTopics(c)...) {
		if err := cluster.CreateTopic(s.Name, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

// rightsWorld is what both processes share besides Kafka.
type rightsWorld struct {
	t          *testing.T
	config     *configs.Config
	cluster    *kfake.Cluster
	rights     []wiring.Right
	former     map[kmsg.Request]bool // of all who ran before: a fetch that waits may outlast the next one's run
	notes      *fanout.Memory
	subscribed *subscriptions.Memory
}

// With exactly the rights of `pushctl topics acls` a gateway, a process of fan-outs and one of
// webhooks do all that they can do, and each of those rights is one that they use.
func TestRightsAreThoseThatAreUsed(t *testing.T) {
	c := fleet(t)
	c.Gateway.Topics, c.Gateway.Fanout.Enabled, c.Gateway.Fanout.AdminListen = true, true, ""
	c.Gateway.Webhooks.Senders, c.Gateway.Webhooks.AdminListen = []string{"orders"}, ""
	c.Gateway.Limits.Default = configs.SenderLimits{Hour: 1000} // which push.events is told of
	keys, err := os.ReadFile(c.Gateway.KeysFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Gateway.KeysFile, bytes.Replace(keys, []byte(`["send"]`), []byte(`["send", "read", "users"]`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &rightsWorld{t: t, config: c, cluster: lawfulKafka(t, c), rights: wiring.Rights(c), notes: fanout.NewMemory(), subscribed: subscriptions.NewMemory(nil)}
	c.Kafka.Brokers = w.cluster.ListenAddrs()
	w.fillRegistry()
	paused := w.gateway()
	w.fanouts(paused)
	w.webhooks()
}

// passOver adds to what those that come next pass over. Whoever notes still has the former map.
func (w *rightsWorld) passOver(noted map[kmsg.Request]bool) {
	maps.Copy(noted, w.former)
	w.former = noted
}

// fillRegistry lets a registry make Redis what it is where users are known.
func (w *rightsWorld) fillRegistry() {
	t, c := w.t, rightstest.As(w.t, w.config, "admin")
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	noted := rightstest.NoteRequests(w.cluster)
	defer func() { w.passOver(noted()) }()
	defer running.Wait()
	defer stop()
	running.Go(func() {
		o := worker.RegistryOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}
		if err := worker.RunRegistry(ctx, o); ctx.Err() == nil {
			t.Errorf("the registry ended: %v", err)
		}
	})
	options, err := wiring.Kafka(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r, err := openRegistry(c, options)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for tries := 0; ; tries++ {
		if _, err = r.Preferences(t.Context(), "u1"); err == nil {
			return
		}
		if tries == patience {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// gateway asks a gateway for all that needs Kafka. It returns the messages to topics that
// are paused.
func (w *rightsWorld) gateway() (paused []uuid.UUID) {
	t, c := w.t, rightstest.As(w.t, w.config, string(wiring.HTTPGateway))
	u := rightstest.NoteUses(w.cluster, append(wiring.Topics(c), wiring.FanoutTopics(c)...), w.former)
	noted := rightstest.NoteRequests(w.cluster)
	defer func() { w.passOver(noted()) }()
	log := slog.New(slog.DiscardHandler)
	users, closeUsers, err := openUsers(c, log)
	if err != nil {
		t.Fatal(err)
	}
	defer closeUsers()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	at := make(chan string, 1) // buffered, capacity 1; never closed
	running.Go(func() {
		o := worker.GatewayOptions{Config: c, Log: log, Metrics: prometheus.NewRegistry(), Users: users, Topics: w.subscribed, Fanouts: w.notes,
			OpenStatus: func(context.Context, status.Options) (worker.Status, error) { return openMemory() },
			Listening:  func(a net.Addr) { at <- "http://" + a.String() }}
		if err := worker.RunGateway(ctx, o); ctx.Err() == nil {
			t.Errorf("the gateway ended: %v", err)
			at <- ""
		}
	})
	url := <-at
	ask := func(method, path, body string, want int) map[string]any {
		t.Helper()
		got, said := 0, ""
		for tries := 0; tries < patience; tries++ { // what it needs is not connected at once
			req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", "application/json")
			if strings.HasPrefix(path, "/u/") {
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			r, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if got, said = r.StatusCode, string(text); got != http.StatusServiceUnavailable {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		var m map[string]any
		if _ = json.Unmarshal([]byte(said), &m); got != want { // some answers have no body
			t.Fatalf("%s %s: %d %s", method, path, got, said)
		}
		return m
	}
	for _, l := range c.Lanes {
		a := ask("POST", "/v1/messages", `{"app": "shop", "service_type": "`+l.Name+`", "user_id": "u1", "title": "t"}`, http.StatusAccepted)
		ask("GET", "/v1/receipts/"+a["receipt"].(string), "", http.StatusOK)
		ask("PUT", "/v1/topics/"+l.Name, `{"app": "shop", "service_type": "`+l.Name+`"}`, http.StatusCreated)
		ask("PUT", "/v1/topics/"+l.Name+"/subscriptions/u1", `{}`, http.StatusOK)
		ask("POST", "/v1/topics/"+l.Name+"/messages", `{"title": "t"}`, http.StatusAccepted)
		waits := ask("POST", "/v1/topics/"+l.Name+"/messages", `{"title": "t"}`, http.StatusAccepted)
		ask("POST", "/v1/messages/"+waits["receipt"].(string)+"/pause", "", http.StatusAccepted)
		id, err := fanout.ParseMessageID(waits["id"].(string))
		if err != nil {
			t.Fatal(err)
		}
		paused = append(paused, fanout.MessageOf(id, "orders", "shop", l.Name))
	}
	ask("PUT", "/v1/users/u1/preferences", `{"opt_out_types": ["promo"]}`, http.StatusAccepted)
	link := ask("POST", "/v1/users/u1/unsubscribe-links", `{"app": "shop", "type": "news"}`, http.StatusCreated)
	ask("POST", link["path"].(string), "List-Unsubscribe=One-Click", http.StatusOK)
	u.Await(t, w.rights, wiring.HTTPGateway)
	return paused
}

// openMemory is a status store without rows.
func openMemory() (worker.Status, error) {
	m, err := status.NewMemory(status.DefaultLayouts())
	return rowless{m}, err
}

type rowless struct{ *status.Memory }

func (rowless) Close() {}

// fanouts works on the messages to topics, those that are paused too.
func (w *rightsWorld) fanouts(paused []uuid.UUID) {
	t, c := w.t, rightstest.As(w.t, w.config, string(wiring.FanoutWorker))
	options, err := wiring.Kafka(rightstest.As(t, w.config, "admin"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	writer, err := kafka.NewWriter(options, kafka.WriterOptions{Topic: fanout.JobsTopic})
	if err != nil {
		t.Fatal(err)
	}
	err = writer.Append(t.Context(), []kafka.Record{{Key: []byte("k"), Value: []byte("no job")}})
	writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	u := rightstest.NoteUses(w.cluster, append(wiring.Topics(c), wiring.FanoutTopics(c)...), w.former)
	noted := rightstest.NoteRequests(w.cluster)
	defer func() { w.passOver(noted()) }()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		o := worker.FanoutOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), OpenStores: func(context.Context) (worker.FanoutStores, error) {
			return worker.FanoutStores{Notes: w.notes, Audience: worker.TopicAudience(w.subscribed), Ping: func(context.Context) error { return nil }, Close: func() {}}, nil
		}}
		if err := worker.RunFanout(ctx, o); ctx.Err() == nil {
			t.Errorf("the fan-outs ended: %v", err)
		}
	})
	u.Await(t, w.rights, wiring.FanoutWorker)
	for _, id := range paused {
		p, err := w.notes.Look(ctx, id)
		if err != nil || p == nil || p.State != fanout.Paused || len(p.Ended) > 0 {
			t.Errorf("a message that is paused: %+v, %v", p, err)
		}
	}
}
