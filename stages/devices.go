package stages

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Devices turns each item into its deliveries: all devices that the user has
// for the app, or the one that the message names, without those that are
// closed already, and judges each by its channel. It works on what Preferences has read and asks no store.
type Devices struct{}

// Name implements pipeline.Stage.
func (*Devices) Name() pipeline.Step { return StepDevices }

// Apply never fails.
func (*Devices) Apply(_ context.Context, b *pipeline.Batch) error {
	most := 0
	for i := range b.Items {
		if it := &b.Items[i]; it.Verdict == push.Undecided {
			most += atMost(it)
		}
	}
	slab := make([]pipeline.Delivery, 0, most) // one allocation for the batch
	needs := func(i int) byte {
		it := &b.Items[i]
		n := byte(it.Verdict) + byte(len(it.App)) + byte(it.Expires)
		if it.User != nil && len(it.User.Devices) > 0 {
			d := &it.User.Devices[0]
			n += byte(d.Platform) + byte(len(d.Hash)) + push.Ends(d.App)
		}
		return n
	}
	for i := range push.Prefetching(len(b.Items), needs) {
		it := &b.Items[i]
		if it.Verdict != push.Undecided {
			continue
		}
		from := len(slab)
		slab = deliveries(slab, it)
		it.Deliveries = slab[from:len(slab):len(slab)]
		switch known := it.History != nil && it.History.HasDevices(); {
		case len(it.Deliveries) > 0 && (known || wanted(it.Deliveries)):
		case len(it.Deliveries) > 0 && it.User.Quarantine&push.DeviceUnread == 0: // as a whole, where no device has a row
			it.Deliveries = nil
			it.Decide(push.Suppressed, push.OptedOutChannel, "")
		case known:
			it.Decide(push.Duplicate, "", "") // all its devices are closed
		case it.User.Quarantine&push.DeviceUnread != 0:
			it.Deliveries = nil // none is wanted
			holdForUser(it, push.UserQuarantined, time.Now())
		default:
			it.Decide(push.Suppressed, push.NoDevice, "")
		}
	}
	return nil
}

// wanted reports whether a delivery is not one of a channel that its user opted
// out of.
func wanted(ds []pipeline.Delivery) bool {
	for i := range ds {
		if ds[i].Reason != push.OptedOutChannel {
			return true
		}
	}
	return false
}

// atMost is how many deliveries an item can have at most.
func atMost(it *pipeline.Item) int {
	switch {
	case it.Device.Token != "":
		return 1
	case len(it.Devices) > 0:
		return len(it.Devices)
	}
	return len(it.User.Devices)
}

// deliveries appends what the item is to be sent to.
func deliveries(ds []pipeline.Delivery, it *pipeline.Item) []pipeline.Delivery {
	if it.Device.Token != "" {
		d := named(it)
		return appendOpen(ds, it, &d)
	}
	if len(it.Devices) > 0 {
		devices := byHash(it)
		for _, hash := range it.Devices {
			ds = appendByHash(ds, it, hash, devices)
		}
		return ds
	}
	for i := range it.User.Devices {
		d := &it.User.Devices[i]
		if d.App != it.App || lateComer(it, d) {
			continue
		}
		ds = appendOpen(ds, it, d)
	}
	return ds
}

// named is the device that the message itself names.
func named(it *pipeline.Item) push.Device {
	t := it.Device
	environment, _ := t.Platform.Environment(t.Environment) // it was checked when it was decoded
	return push.Device{Platform: t.Platform, Environment: environment, App: it.App, Token: t.Token,
		Hash: push.DeviceHash(t.Platform, t.Token)}
}

// fewDevices is how many devices a record names of which each is looked for by itself:
// for more, a table of the user's is worth its allocation.
const fewDevices = 10

// byHash are the user's devices for the app, if the record names more than a few; else nil.
func byHash(it *pipeline.Item) map[string]*push.Device {
	if len(it.Devices) <= fewDevices {
		return nil
	}
	devices := make(map[string]*push.Device, len(it.User.Devices))
	for i := range it.User.Devices {
		if d := &it.User.Devices[i]; d.App == it.App && devices[d.Hash] == nil {
			devices[d.Hash] = d
		}
	}
	return devices
}

// appendByHash adds the device that a retry record names or, if the user no
// longer has it, its outcome. devices is of byHash.
func appendByHash(ds []pipeline.Delivery, it *pipeline.Item, hash string, devices map[string]*push.Device) []pipeline.Delivery {
	if closed(it, hash) {
		if v, reason, ok := it.History.Overtaken(hash, it.Step()); ok {
			ds = append(ds, pipeline.Delivery{Item: it, Device: pipeline.Device{Hash: hash}, Verdict: v, Reason: reason})
		}
		return ds
	}
	if d := devices[hash]; d != nil {
		return appendOpen(ds, it, d)
	}
	if devices == nil {
		for i := range it.User.Devices {
			if d := &it.User.Devices[i]; d.Hash == hash && d.App == it.App {
				return appendOpen(ds, it, d)
			}
		}
	}
	return append(ds, pipeline.Delivery{Item: it, Device: pipeline.Device{Hash: hash},
		Verdict: push.Suppressed, Reason: push.TokenGone})
}

func appendOpen(ds []pipeline.Delivery, it *pipeline.Item, d *push.Device) []pipeline.Delivery {
	if closed(it, d.Hash) {
		return ds
	}
	ds = append(ds, pipeline.Delivery{Item: it, Device: pipeline.Device{Token: d.Token, Hash: d.Hash}, Expires: it.Expires,
		Route: push.Route{Platform: d.Platform, App: it.App, Environment: d.Environment}})
	if !it.User.Preferences.Wants(&it.Message, d.Platform.Channel()) {
		last := &ds[len(ds)-1]
		last.Verdict, last.Reason = push.Suppressed, push.OptedOutChannel
	}
	return ds
}

func closed(it *pipeline.Item, hash string) bool {
	return it.History != nil && it.History.Closed(hash, it.Step(), it.Redrive > 0)
}

// lateComer reports whether a device was registered after the notification
// was first seen, while others have rows already: the redelivered record does
// not reach devices that the first one could not.
func lateComer(it *pipeline.Item, d *push.Device) bool {
	return it.History != nil && it.History.HasDevices() && d.RegisteredAt.After(it.FirstSeen.Time())
}
