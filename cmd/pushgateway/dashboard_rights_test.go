package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/rightstest"
)

// With exactly the rights of `pushctl topics acls --dashboard` the page shows all that it
// has, and with those of --redriver besides keys act there; each of these rights is used.
func TestRightsOfTheDashboardAreThoseThatAreUsed(t *testing.T) {
	c := teamFleet(t)
	c.Gateway.Topics, c.Gateway.Fanout.Enabled = true, true
	const acting = "acting"
	cluster := lawfulKafka(t, c, rightstest.User(t, c, acting, wiring.Dashboard, wiring.Redriver))
	c.Kafka.Brokers = cluster.ListenAddrs()
	deadLetter(t, rightstest.As(t, c, "admin"))
	note(t, rightstest.As(t, c, "admin"))
	rights, all := wiring.Rights(c), append(wiring.Topics(c), wiring.FanoutTopics(c)...)
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	u := rightstest.NoteUses(cluster, all, nil)
	b, stop := serveBoard(t, rightstest.As(t, c, string(wiring.Dashboard)), nil)
	b.await("/snapshot.json", `"ready":true`)
	b.await("/letters", `"id":"dead-critical"`)
	u.Await(t, rights, wiring.Dashboard)
	code, text := b.ask("GET", "/snapshot.json", "eye", "")
	if strings.Contains(text, "Kafka does not tell") {
		t.Errorf("offsets that are not told: %d %s", code, text)
	}
	stop()

	b, stop = serveBoard(t, rightstest.As(t, c, acting), nil)
	defer stop()
	b.await("/snapshot.json", `"ready":true`)
	for _, l := range c.Lanes {
		b.redrive("hand", l.Name)
	}
	u.Await(t, rights, wiring.Dashboard, wiring.Redriver)
}

// note notes something in each audit topic, of a dead letter that there is not: of what is
// empty nothing is read.
func note(t *testing.T, c *configs.Config) {
	t.Helper()
	options, err := wiring.Kafka(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range c.Lanes {
		q, err := kafka.NewDLQ(options, l.Topic)
		if err != nil {
			t.Fatal(err)
		}
		err = q.Audit().Write(t.Context(), []kafka.Mark{{What: kafka.Dismissed, By: "nobody", At: time.Now(), Timestamp: time.Now(), Place: kafka.Place{Partition: 1, Offset: 17}}})
		q.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// await asks until an answer has these words.
func (b *board) await(path, words string) {
	b.t.Helper()
	for tries := 0; ; tries++ {
		code, text := b.ask("GET", path, "eye", "")
		if code == http.StatusOK && strings.Contains(text, words) {
			return
		}
		if tries == patience {
			b.t.Fatalf("%s: %d %s, want %s", path, code, text, words)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
