//go:build linux

package beside

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/crowd"
)

// messages are a sender's single ones, at a fixed rate, each for the next of the receivers.
type messages struct {
	caller fleet.Caller
	url    string
	people *crowd.Crowd

	mu      sync.Mutex
	sent    []latency.Sent // guarded by mu; those that were accepted
	refused int            // guarded by mu
	first   error          // guarded by mu; why the first one was
}

// sendTime bounds one request, which the end of the measurement does not cut off: what is counted was sent.
const sendTime = time.Minute

// send sends one. It counts from when it was due: a gateway that has no time for it is no excuse.
func (m *messages) send(n int, due time.Time) {
	user := n % receivers
	body := fmt.Sprintf(`{"app":%q,"service_type":%q,"type":"order_update","user_id":%q,"title":"On its way","body":"Order %07d has left the house and will be there tomorrow."}`,
		fleet.App, messageLane, m.people.User(user).ID, n)
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	var accepted struct{ ID string }
	err := m.caller.Order(ctx, http.MethodPost, m.url, body, &accepted)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.refused++; m.first == nil {
			m.first = err
		}
		return
	}
	m.sent = append(m.sent, latency.Sent{ID: accepted.ID, User: user, At: due})
}

// so far are those that were accepted, and how many were not.
func (m *messages) soFar() (sent []latency.Sent, refused int, first error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sent), m.refused, m.first
}

// devices are those of all receivers.
func devicesOf(people *crowd.Crowd) (devices []string) {
	for i := range receivers {
		devices = append(devices, people.Targets(i).Live...)
	}
	return devices
}
