// Package userstest is an in-memory push.users and push.feedback, for tests of
// what writes and follows them, and a World of these, a Redis and registries.
package userstest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

// Topic is a compacted topic in memory. It is safe for concurrent use.
type Topic struct {
	mu         sync.Mutex
	partitions [][]users.FetchedRecord
	ends       []int64
	grown      chan struct{} // closed and replaced by Append
}

// NewTopic makes an empty topic.
func NewTopic(partitions int) *Topic {
	return &Topic{
		partitions: make([][]users.FetchedRecord, partitions), ends: make([]int64, partitions),
		grown: make(chan struct{}),
	}
}

// Append implements users.Log.
func (t *Topic) Append(ctx context.Context, records []users.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range records {
		p := t.partitionOf(string(users.PartitionKey([]byte(r.Key))))
		// What Kafka carries: milliseconds.
		if !r.IfNotAfter.IsZero() {
			r.IfNotAfter = time.UnixMilli(r.IfNotAfter.UnixMilli())
		}
		t.partitions[p] = append(t.partitions[p], users.FetchedRecord{Record: r, Offset: t.ends[p]})
		t.ends[p]++
	}
	close(t.grown)
	t.grown = make(chan struct{})
	return nil
}

// Read implements erase.History.
func (t *Topic) Read(ctx context.Context, user string, from int64, each func(users.FetchedRecord) error) (partition int32, next int64, err error) {
	t.mu.Lock()
	p := t.partitionOf(user)
	records, end := slices.Clone(t.partitions[p]), t.ends[p]
	t.mu.Unlock()
	for _, r := range records {
		if r.Offset < from {
			continue
		}
		if err := each(r); err != nil {
			return 0, 0, err
		}
	}
	return int32(p), end, ctx.Err()
}

func (t *Topic) partitionOf(user string) int {
	return int(xxhash.Sum64String(user) % uint64(len(t.partitions)))
}

// Grow adds partitions, as nobody should: users move to other partitions.
func (t *Topic) Grow(partitions int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.partitions) < partitions {
		t.partitions, t.ends = append(t.partitions, nil), append(t.ends, 0)
	}
}

// Compact removes all but the latest record of each key, and the tombstones
// among these too, as Kafka does in the end.
func (t *Topic) Compact() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, records := range t.partitions {
		latest := map[string]int64{}
		for _, r := range records {
			latest[r.Key] = r.Offset
		}
		t.partitions[p] = slices.DeleteFunc(slices.Clone(records), func(r users.FetchedRecord) bool {
			return latest[r.Key] != r.Offset || r.Value == nil
		})
	}
}

// Latest are the latest records of all keys that have a value.
func (t *Topic) Latest() []users.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	var latest []users.Record
	for _, records := range t.partitions {
		last := map[string]users.Record{}
		for _, r := range records {
			last[r.Key] = r.Record
		}
		for _, r := range last {
			if r.Value != nil {
				latest = append(latest, r)
			}
		}
	}
	return latest
}

// Records are all records.
func (t *Topic) Records() (all []users.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, records := range t.partitions {
		for _, r := range records {
			all = append(all, r.Record)
		}
	}
	return all
}

// Ends are the next offsets of the partitions.
func (t *Topic) Ends() []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.ends)
}

// Merge reads the whole topic by its written rules and returns every user that
// is not empty, devices in the order of their hashes. It shares no code with
// the registry. A value that cannot be read changes nothing.
func (t *Topic) Merge() map[string]*push.User {
	t.mu.Lock()
	defer t.mu.Unlock()
	devices := map[string]push.Device{}
	prefs := map[string]push.Preferences{}
	profiles := map[string]push.Profile{}
	limits := map[string][]push.PersonalLimit{}
	for _, records := range t.partitions {
		for _, r := range records {
			if !strings.Contains(r.Key, "/") {
				continue
			}
			user, part := r.Key[:strings.LastIndexByte(r.Key, '/')], r.Key[strings.LastIndexByte(r.Key, '/')+1:]
			switch hash, isDevice := strings.CutPrefix(part, "device:"); {
			case isDevice && r.Value != nil:
				if d, ok := readDevice(r.Value, hash); ok && !devices[r.Key].RegisteredAt.After(d.RegisteredAt) {
					devices[r.Key] = d
				}
			case isDevice && (r.IfNotAfter.IsZero() || !devices[r.Key].RegisteredAt.After(r.IfNotAfter)):
				delete(devices, r.Key)
			case part == "prefs" && r.Value != nil:
				if p, ok := readPreferences(r.Value); ok {
					prefs[user] = p
				}
			case part == "prefs":
				delete(prefs, user)
			case part == "profile" && r.Value != nil:
				if p, ok := readProfile(r.Value); ok {
					profiles[user] = p
				}
			case part == "profile":
				delete(profiles, user)
			case part == "limits" && r.Value != nil:
				if l, ok := readLimits(r.Value); ok {
					limits[user] = l
				}
			case part == "limits":
				delete(limits, user)
			}
		}
	}
	merged := map[string]*push.User{}
	of := func(user string) *push.User {
		if merged[user] == nil {
			merged[user] = new(push.User)
		}
		return merged[user]
	}
	for key, d := range devices {
		u := of(key[:strings.LastIndexByte(key, '/')])
		u.Devices = append(u.Devices, d)
		slices.SortFunc(u.Devices, func(a, b push.Device) int { return strings.Compare(a.Hash, b.Hash) })
	}
	for user, p := range prefs {
		if p.Blocked || p.OptOutAll || len(p.Channels)+len(p.Types)+len(p.Senders)+len(p.OptIns)+len(p.Quiet) > 0 {
			of(user).Preferences = p
		}
	}
	for user, p := range profiles {
		if p != (push.Profile{}) {
			of(user).Profile = p
		}
	}
	for user, l := range limits {
		if len(l) > 0 {
			of(user).Limits = l
		}
	}
	return merged
}

func readDevice(value []byte, hash string) (push.Device, bool) {
	var v struct {
		V                                         *int
		Platform, Environment, App, Token, Locale string
		AppVersion                                string    `json:"app_version"`
		At                                        time.Time `json:"registered_at"`
	}
	if err := json.Unmarshal(value, &v); err != nil || v.V != nil && *v.V != 1 {
		return push.Device{}, false
	}
	p, known := push.ParsePlatform(v.Platform)
	return push.Device{
		Platform: p, Environment: v.Environment, App: v.App, Token: v.Token, Locale: v.Locale, AppVersion: v.AppVersion,
		Hash: hash, RegisteredAt: v.At.UTC(),
	}, known && push.DeviceHash(p, v.Token) == hash && time.Until(v.At) < 24*time.Hour
}

func readPreferences(value []byte) (push.Preferences, bool) {
	var v struct {
		V        *int
		Blocked  bool
		All      bool     `json:"opt_out_all"`
		Channels []string `json:"opt_out_channels"`
		Types    []string `json:"opt_out_types"`
		Senders  []string `json:"opt_out_senders"`
		OptIns   []string `json:"opt_in_types"`
		Quiet    []struct {
			From, To    string
			Days, Types []string
		} `json:"quiet_hours"`
	}
	if err := json.Unmarshal(value, &v); err != nil || v.V != nil && *v.V != 1 && *v.V != 2 {
		return push.Preferences{}, false
	}
	for _, name := range slices.Concat(v.Channels, v.Types, v.Senders, v.OptIns) {
		if name == "" || len(name) > 64 {
			return push.Preferences{}, false
		}
	}
	p := push.Preferences{Blocked: v.Blocked, OptOutAll: v.All, Channels: v.Channels, Types: v.Types, Senders: v.Senders, OptIns: v.OptIns}
	for _, q := range v.Quiet {
		from, err := time.Parse("15:04", q.From)
		to, errTo := time.Parse("15:04", q.To)
		if err != nil || errTo != nil {
			return push.Preferences{}, false
		}
		h := push.QuietHours{From: push.Clock(60*from.Hour() + from.Minute()), To: push.Clock(60*to.Hour() + to.Minute()), Types: q.Types}
		for _, day := range q.Days {
			h.Days |= map[string]push.Weekdays{"sun": 1, "mon": 2, "tue": 4, "wed": 8, "thu": 16, "fri": 32, "sat": 64}[day]
		}
		p.Quiet = append(p.Quiet, h)
	}
	return p, true
}

func readProfile(value []byte) (push.Profile, bool) {
	var v struct {
		V               *int
		Locale, Country string
		Zone            string    `json:"time_zone"`
		Number          *uint32   `json:"user_number"`
		LastActivity    time.Time `json:"last_activity"`
	}
	if err := json.Unmarshal(value, &v); err != nil || v.V != nil && *v.V != 1 || v.Country != "" && len(v.Country) != 2 {
		return push.Profile{}, false
	}
	p := push.Profile{Locale: v.Locale, Zone: v.Zone, Country: v.Country, LastActivity: v.LastActivity}
	if v.Number != nil {
		p.Number, p.HasNumber = *v.Number, true
	}
	return p, true
}

func readLimits(value []byte) (limits []push.PersonalLimit, ok bool) {
	var v struct {
		V      *int
		Limits map[string]int
	}
	if err := json.Unmarshal(value, &v); err != nil || v.V != nil && *v.V != 1 {
		return nil, false
	}
	for name, most := range v.Limits {
		if name == "" || most < 1 {
			return nil, false
		}
		limits = append(limits, push.PersonalLimit{Name: name, Max: most})
	}
	slices.SortFunc(limits, func(a, b push.PersonalLimit) int { return strings.Compare(a.Name, b.Name) })
	return limits, true
}
