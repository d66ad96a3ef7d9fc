// Package account says what the provider of a platform is opened with that has
// no section of its own in the configuration.
package account

import (
	"log/slog"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Account is an app's account on a platform, for one route.
type Account struct {
	Route push.Route
	// Settings are those of apps[].accounts, without the platform before them.
	// What they mean is the provider's to say.
	Settings map[string]string
	// Secrets are the contents of the files that settings …_file name, by these.
	// They reach no log, error or metric.
	Secrets  map[string]string
	Lanes    int           // how many lanes share the route, numbered from 0, the most urgent first
	Deadline time.Duration // of a send
	Log      *slog.Logger
}
