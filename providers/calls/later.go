package calls

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// LongestWait is the most that a provider is believed to want us to wait: longer than
// that one bad header must not stop a route.
const LongestWait = time.Hour

// RetryAfter reads the header of that name: seconds, or a date, which is measured against
// the server's own clock where its header date gave one. It is from 0 to LongestWait; ok
// is false where the header is not there, or cannot be read.
func RetryAfter(value, date string, now time.Time) (wait time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if s, err := strconv.ParseInt(value, 10, 64); err == nil {
		if s < 0 {
			return 0, false
		}
		return time.Duration(min(s, int64(LongestWait/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if server, err := http.ParseTime(date); err == nil {
		now = server
	}
	return min(max(at.Sub(now), 0), LongestWait), true
}
