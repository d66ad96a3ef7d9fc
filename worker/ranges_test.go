package worker

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
)

// counted is what a reader of push.events comes to, by state.
func (n *night) counted() (counts map[string]int64, missing int64) {
	n.t.Helper()
	var tally events.Tally
	counts = make(map[string]int64)
	n.eachEvent(func(e *events.Event, _ string) {
		tally.Add(e, func(c *events.Count, _ time.Time) { counts[c.State] += c.N })
	})
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n == 0 })
	return counts, tally.Missing()
}

// A worker's commits do not come through before it ends: the next one reads all of its
// records again and finds their rows. Each counts once, as what it came to, and a copy that
// its producer wrote counts as a copy.
func TestWhatIsReadAgainCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 1000
		n, ids := crowded(t, records, func(c *configs.Config) { c.Lanes[0].Shed = configs.Shed{High: 1, Medium: 1, Low: 1, Bulk: 1} })
		defer n.close()
		for i, id := range ids[:7] {
			value := fmt.Sprintf(`{"id":%q,"app":"shop","type":"news","title":"Again","device":{"platform":"apns","token":"%064x","environment":"production"}}`, id, i)
			if err := n.client.ProduceSync(t.Context(), &kgo.Record{Topic: n.config.Lanes[0].Topic, Key: []byte(id), Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		commits := false
		n.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			n.cluster.KeepControl()
			return nil, errors.New("commits do not come through"), !commits
		})
		stop := n.worker()
		time.Sleep(time.Minute)
		stop()
		want := map[string]int64{"DELIVERED": records, "DUPLICATE": 7}
		if n.allCommitted(records + 7) {
			t.Fatal("all is committed: this tests nothing")
		}
		if got, _ := n.counted(); len(got) == 0 {
			t.Fatal("the first worker told nothing: this tests nothing")
		}
		commits = true
		n.worker()
		time.Sleep(time.Minute)
		got, missing := n.counted()
		if !maps.Equal(got, want) || missing != 0 || !n.allCommitted(records+7) {
			t.Errorf("counted %v, %d missing, want %v; all committed %v", got, missing, want, n.allCommitted(records+7))
		}
	})
}
