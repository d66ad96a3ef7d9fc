//go:build !linux

package lookup

import "time"

var began = time.Now()

// cpu is the time since the start, where CPU time is not known.
func cpu() time.Duration { return time.Since(began) }
