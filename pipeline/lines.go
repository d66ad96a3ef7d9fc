package pipeline

import "github.com/pushfleet/pushfleet/push"

// What steps read ahead, for push.Prefetching: each sums a byte of every line of memory
// that the steps named need. They read only what nobody else writes at that time.

// lines is for steps that look at the delivery and its item, and copy their names.
func (d *Delivery) lines() byte { return d.own() + push.Ends(d.Device.Hash) + d.Item.lines() }

// own is for steps that look at the delivery alone.
func (d *Delivery) own() byte {
	return byte(d.Expires) + byte(len(d.Route.App)) + byte(d.Result.Class) + byte(d.ending.State) + byte(d.rowAt)
}

// lines is for steps that look at the item without its deliveries, and copy its names.
func (it *Item) lines() byte {
	return byte(it.Verdict) + byte(it.Offset) + byte(it.Attempt) + byte(it.Priority) + byte(len(it.Ended)) + it.names()
}

// names is for steps that tell items by their ids and users.
func (it *Item) names() byte { return push.Ends(it.ID) + push.Ends(it.UserID) }

// whole is for steps that look at the item, and all of each delivery.
func (it *Item) whole() byte {
	sum := it.lines() + push.Ends(it.CollapseKey)
	for j := range it.Deliveries {
		sum += it.Deliveries[j].own()
	}
	return sum
}

// sorted is for a step that sorts the item's deliveries by their routes.
func (it *Item) sorted() byte {
	sum := byte(it.Verdict)
	for j := range it.Deliveries {
		sum += byte(it.Deliveries[j].Verdict) + byte(len(it.Deliveries[j].Route.App))
	}
	return sum
}
