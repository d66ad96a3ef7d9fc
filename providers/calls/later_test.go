package calls

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, k := range []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"", "", 0, false}, {"30", "", 30 * time.Second, true}, {" 30 ", "", 30 * time.Second, true}, {"0", "", 0, true},
		{"-5", "", 0, false}, {"soon", "", 0, false}, {"99999999999999999999", "", 0, false}, {"9999999999", "", time.Hour, true},
		{at(45 * time.Second), "", 45 * time.Second, true}, {at(-time.Hour), "", 0, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", time.Hour, true},
		{at(45 * time.Second), at(40 * time.Second), 5 * time.Second, true}, // by the server's clock
	} {
		if got, ok := RetryAfter(k.value, k.date, now); got != k.want || ok != k.ok {
			t.Errorf("%q at %q: %v, %v", k.value, k.date, got, ok)
		}
	}
}
