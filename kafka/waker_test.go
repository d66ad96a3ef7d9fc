package kafka

import (
	"context"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// On a busy machine, the client loses its wake-up in one of some thousand changes of its
// offsets. Records must come all the same.
func TestRecordsComeHoweverOftenOffsetsAreSet(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var readers sync.WaitGroup
	for range 16 {
		client, err := c.options.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"push": {0: kgo.NewOffset().At(0)}}))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		readers.Go(func() {
			w := waker{client: client}
			for i := range 2000 {
				if fetches := w.wait(ctx, 4); fetches.NumRecords() == 0 {
					t.Errorf("the offsets were set %d times, and nothing comes any more: %v", i, fetches.Err())
					return
				}
				for _, at := range []int64{1, 0} {
					client.SetOffsets(map[string]map[int32]kgo.EpochOffset{"push": {0: {Epoch: -1, Offset: at}}})
				}
			}
		})
	}
	readers.Wait()
}
