package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Intents of a notification follow each other, whatever routes its devices have.
func TestIntentsOfANotificationFollowEachOther(t *testing.T) {
	waiting := make(map[*line][]*Delivery)
	var items []*Item
	for i := range 20 {
		items = append(items, &Item{Message: push.Message{ID: fmt.Sprint("n", i), UserID: "u"}})
	}
	for range 3 {
		l := new(line)
		for _, it := range items {
			waiting[l] = append(waiting[l], &Delivery{Item: it, Device: Device{Hash: fmt.Sprint("d", len(waiting))}})
		}
	}
	ended, last := map[string]bool{}, ""
	rows := intents(waiting, time.Now())
	for _, r := range rows {
		if r.ID != last {
			if ended[r.ID] {
				t.Fatalf("rows of %s are apart", r.ID)
			}
			ended[last], last = true, r.ID
		}
	}
	if len(rows) != 60 {
		t.Errorf("%d rows", len(rows))
	}
}
