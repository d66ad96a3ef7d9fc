//go:build linux

package whole

import (
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/usage"
)

// account is what everything had used up at one moment.
type account struct {
	at     time.Time
	cpu    map[string]time.Duration
	pushes int
}

func takeAccount(f *fleet.Fleet, pids map[string]int) (*account, error) {
	a := &account{at: time.Now(), cpu: make(map[string]time.Duration)}
	for name, pid := range pids {
		used, err := usage.CPU(pid)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		a.cpu[name] = used
	}
	totals := f.Sim.Ledger().Totals().Providers
	a.pushes = int(totals["apns"].Accepted + totals["fcm"].Accepted)
	return a, nil
}
