package quiet

import (
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// maxZones bounds the names that are remembered: twice those of the database. Users
// may have any that look like one.
const maxZones = 1200

// zones remembers those that were looked for, because the database is read at each look.
// The zero value is ready.
type zones struct {
	mu    sync.RWMutex
	found map[string]*time.Location // guarded by mu; nil = there is none of this name
}

// find is the zone of a name; nil if there is none.
func (z *zones) find(name string) *time.Location {
	z.mu.RLock()
	zone, known := z.found[name]
	z.mu.RUnlock()
	if known || !push.ZoneLike(name) {
		return zone
	}
	zone, _ = push.LoadZone(name)
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.found == nil {
		z.found = make(map[string]*time.Location)
	}
	if zone != nil || len(z.found) < maxZones {
		z.found[strings.Clone(name)] = zone // the name may be cut from a whole answer of Redis
	}
	return zone
}
