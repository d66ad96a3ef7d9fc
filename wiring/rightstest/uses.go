package rightstest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/wiring"
)

// patience is how often it is looked whether something has come, for half a minute and more.
const patience = 3000

// Uses are what requests to Kafka need the right to, as "Write topic push.users".
type Uses struct {
	topics map[[16]byte]string   // names by id; does not change
	former map[kmsg.Request]bool // those of who has ended before; does not change

	mu      sync.Mutex
	seen    map[string]bool // guarded by mu
	unknown map[string]bool // guarded by mu; requests that it knows nothing of
}

// NoteRequests begins to note the requests to a cluster. What it returns waits until all
// that were under way have come, ends that and returns them.
func NoteRequests(c *kfake.Cluster) (end func() map[kmsg.Request]bool) {
	var mu sync.Mutex
	var last time.Time                 // when one came; guarded by mu
	all := make(map[kmsg.Request]bool) // nil = it has ended; guarded by mu
	c.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		if last = time.Now(); all != nil {
			all[r] = true
		}
		return nil, nil, false
	})
	quiet := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return time.Since(last) > 300*time.Millisecond
	}
	return func() (noted map[kmsg.Request]bool) {
		for tries := 0; !quiet() && tries < patience; tries++ {
			time.Sleep(10 * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		noted, all = all, nil
		return noted
	}
}

// NoteUses begins to note what is asked of a cluster. It passes over former requests: a
// fetch that has waited is seen again when its time is up, also of a client that is gone.
func NoteUses(c *kfake.Cluster, topics []kafka.TopicSpec, former map[kmsg.Request]bool) *Uses {
	u := &Uses{topics: make(map[[16]byte]string), former: former, seen: make(map[string]bool), unknown: make(map[string]bool)}
	for _, s := range topics {
		u.topics[c.TopicInfo(s.Name).TopicID] = s.Name
	}
	c.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		u.note(r)
		return nil, nil, false
	})
	return u
}

// note notes what a request needs (Kafka's documentation, "Authorization and ACLs").
func (u *Uses) note(r kmsg.Request) {
	if u.former[r] {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	need := func(operation, resource, name string) { u.seen[operation+" "+resource+" "+name] = true }
	topic := func(operation, name string, id [16]byte) {
		if name == "" {
			name = u.topics[id]
		}
		need(operation, "topic", name)
	}
	switch r := r.(type) {
	case *kmsg.ProduceRequest:
		for _, t := range r.Topics {
			topic("Write", t.Topic, t.TopicID)
		}
	case *kmsg.FetchRequest:
		for _, t := range r.Topics {
			topic("Read", t.Topic, t.TopicID)
		}
	case *kmsg.ListOffsetsRequest:
		for _, t := range r.Topics {
			topic("Describe", t.Topic, [16]byte{})
		}
	case *kmsg.OffsetForLeaderEpochRequest:
		for _, t := range r.Topics {
			topic("Describe", t.Topic, [16]byte{})
		}
	case *kmsg.MetadataRequest:
		for _, t := range r.Topics {
			if t.Topic != nil {
				topic("Describe", *t.Topic, [16]byte{})
			}
		}
	case *kmsg.DescribeConfigsRequest:
		for _, t := range r.Resources {
			topic("DescribeConfigs", t.ResourceName, [16]byte{})
		}
	case *kmsg.FindCoordinatorRequest:
		for _, name := range append(r.CoordinatorKeys, r.CoordinatorKey) {
			if name != "" {
				need("Describe", "group", name)
			}
		}
	case *kmsg.OffsetFetchRequest:
		for _, g := range r.Groups {
			need("Describe", "group", g.Group)
		}
		if r.Group != "" {
			need("Describe", "group", r.Group)
		}
	case *kmsg.OffsetCommitRequest:
		need("Read", "group", r.Group)
		for _, t := range r.Topics {
			topic("Read", t.Topic, t.TopicID)
		}
	case *kmsg.JoinGroupRequest:
		need("Read", "group", r.Group)
	case *kmsg.SyncGroupRequest:
		need("Read", "group", r.Group)
	case *kmsg.HeartbeatRequest:
		need("Read", "group", r.Group)
	case *kmsg.LeaveGroupRequest:
		need("Read", "group", r.Group)
	case *kmsg.ApiVersionsRequest, *kmsg.SASLHandshakeRequest, *kmsg.SASLAuthenticateRequest, *kmsg.InitProducerIDRequest,
		*kmsg.GetTelemetrySubscriptionsRequest, *kmsg.PushTelemetryRequest: // need none
	default:
		u.unknown[fmt.Sprintf("%T", r)] = true
	}
}

// Beside says how what was used differs from the rights of these roles; empty = not at all.
func (u *Uses) Beside(rights []wiring.Right, roles ...wiring.Role) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	granted := make(map[string]bool)
	for _, r := range rights {
		for _, o := range r.Operations {
			if slices.Contains(roles, r.Role) {
				granted[o+" "+r.Resource+" "+r.Name] = true
			}
		}
	}
	var lines []string
	for use := range u.seen {
		name, is := strings.CutPrefix(use, "Describe ")
		if !granted[use] && !(is && (granted["Read "+name] || granted["Write "+name])) {
			lines = append(lines, "used and not granted: "+use)
		}
	}
	for right := range granted {
		if !u.seen[right] {
			lines = append(lines, "granted and not used: "+right)
		}
	}
	for request := range u.unknown {
		lines = append(lines, "the test knows nothing of "+request)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Await waits until what was used is what these roles may.
func (u *Uses) Await(t *testing.T, rights []wiring.Right, roles ...wiring.Role) {
	t.Helper()
	t.Helper()
	for tries := 0; u.Beside(rights, roles...) != "" && tries < patience; tries++ {
		time.Sleep(10 * time.Millisecond)
	}
	if differs := u.Beside(rights, roles...); differs != "" {
		t.Errorf("%s:\n%s", roles, differs)
	}
}
