package segments

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Names knows which segments the newest file of a source has, and not who is in them: it
// reads the manifest alone, for who only has to refuse a name. It is safe for concurrent use.
type Names struct {
	source   Source
	interval time.Duration
	now      func() time.Time

	polling sync.Mutex
	tag     string    // guarded by polling; of the contents that were read
	asked   time.Time // guarded by polling; when the source was asked last
	err     error     // guarded by polling; what it said then

	known atomic.Pointer[Manifest] // nil until the first one is read
}

// NewNames makes Names that ask the source no more often than each interval; 0 = 30 s. now
// nil = time.Now.
func NewNames(source Source, interval time.Duration, now func() time.Time) *Names {
	if interval == 0 {
		interval = 30 * time.Second
	}
	if now == nil {
		now = time.Now
	}
	return &Names{source: source, interval: interval, now: now}
}

// Poll asks the source, and sooner than after the interval says what it said last; as long as
// no file has been read it asks each time. After an error the names that are known stay.
func (n *Names) Poll(ctx context.Context) error {
	n.polling.Lock()
	defer n.polling.Unlock()
	if now := n.now(); n.known.Load() == nil || now.Sub(n.asked) >= n.interval {
		n.asked, n.err = now, n.read(ctx)
	}
	return n.err
}

// read reads the newest manifest. One of an earlier version is not used, as by a Watcher.
func (n *Names) read(ctx context.Context) error {
	c, err := n.source.Open(ctx, n.tag)
	if errors.Is(err, ErrUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Body.Close() }() // what is read is checked
	m, _, err := ReadManifest(c.Body)
	if err != nil {
		return err
	}
	if k := n.known.Load(); k == nil || m.Version > k.Version {
		n.known.Store(m)
	}
	n.tag = c.Tag
	return nil
}

// Has reports whether there is a segment of a name such as "lifecycle/new". known is false
// as long as no file has been read.
func (n *Names) Has(name string) (has, known bool) {
	m := n.known.Load()
	if m == nil {
		return false, false
	}
	group, segment, _ := strings.Cut(name, "/")
	for i := range m.Groups {
		if m.Groups[i].Name != group {
			continue
		}
		for j := range m.Groups[i].Segments {
			if m.Groups[i].Segments[j].Name == segment {
				return true, true
			}
		}
	}
	return false, true
}
