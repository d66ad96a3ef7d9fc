package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A topic grows under a Placer that has written to it, and a job is pinned to what the topic
// has then: the Placer learns of the new partitions when it is asked for one, and not when its
// metadata is of age, for all that is repeated until then is written to the others again.
func TestAPlacerLearnsOfNewPartitions(t *testing.T) {
	c := newCluster(t, 3, []string{"lane"})
	p, err := NewPlacer(c.options, PlacerOptions{Records: 10, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	place := func(partition int32) error {
		done := make(chan error, 1)
		p.Place(&Placed{Topic: "lane", Partition: partition, Key: []byte("k"), Value: []byte("v")}, func(err error) { done <- err })
		return <-done
	}
	if err := place(2); err != nil {
		t.Fatal(err)
	}
	client, err := c.options.newClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if grown, err := kadm.NewClient(client).CreatePartitions(t.Context(), 3, "lane"); err != nil || grown.Error() != nil {
		t.Fatal(err, grown.Error())
	}
	eventually(t, "a record is in a new partition", func() bool { return place(5) == nil })
}
