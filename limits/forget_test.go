package limits

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// What devices got is forgotten wherever their clocks stood, also what no window
// counts any more, and nothing of others.
func TestForgetDevices(t *testing.T) {
	m := &tables{}
	checkForget(t, m, func() int { return len(m.rows) })

	l := logging(t, nil, m, deviceDay(9))
	decide(t, l, to("late", "news", 0, DeviceHash("phone")))
	log := NewDeviceLog(m, 2)
	m.failing = "SELECT"
	if _, err := log.Count(t.Context(), "u", []string{"phone"}, start); !errors.Is(err, errTablesAway) {
		t.Errorf("counted: %v", err)
	}
	m.failing = "DELETE"
	if err := log.Forget(t.Context(), "u", []string{"phone"}, start); !errors.Is(err, errTablesAway) {
		t.Errorf("forgotten: %v", err)
	}
}

// Who erases a user must know that Redis was away.
func TestForgetWithoutRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errRedisAway }})
	defer client.Close()
	if n, err := Forget(t.Context(), client, "u"); n != 0 || !errors.Is(err, errRedisAway) {
		t.Errorf("forgot %d, %v, want the error", n, err)
	}
}

// A state that is of no use is read again: while Redis is away it is not taken for none.
func TestAStateThatCannotBeReadAgain(t *testing.T) {
	client := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errRedisAway }})
	defer client.Close()
	r := to("a", "x", 0)
	r.State = []byte("damaged")
	err := limiter(t, client, perUser(1, time.Hour)).Decide(t.Context(), []*Request{r})
	if !errors.Is(err, errRedisAway) || !strings.Contains(err.Error(), "reading a limiter state again") || r.Allowed {
		t.Errorf("got %v, allowed %t, want the error of the read", err, r.Allowed)
	}
}

var errRedisAway = errors.New("connection refused")

// checkForget fills tables and empties them. left is how many partitions there are;
// nil = nobody can tell.
func checkForget(t *testing.T, tables Tables, left func() int) {
	t.Helper()
	log, limiter := NewDeviceLog(tables, 2), logging(t, nil, tables, deviceDay(9), deviceMinute(9))
	count := func(owner string, at time.Time, devices ...string) int {
		t.Helper()
		n, err := log.Count(t.Context(), owner, devices, at)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	now := start
	spend := func(owner, id string, at time.Time, zone *time.Location, devices ...string) {
		r := &Request{Owner: owner, ID: id, Type: "news", Priority: 3, At: at, Zone: zone}
		for _, d := range devices {
			r.Devices = append(r.Devices, Device{Hash: DeviceHash(d)})
		}
		decide(t, limiter, r)
	}
	east, west := time.FixedZone("east", 14*3600), time.FixedZone("west", -12*3600)
	spend("u", "oldest", now.Add(-daysTTL+time.Minute), west, "phone") // times no longer count
	spend("u", "tomorrow", now, east, "tablet")
	spend("u", "today", now, nil, "phone")
	spend("other", "today", now, nil, "phone")
	spend("u", "today", now, nil, "lost")

	devices := []string{"phone", "tablet"}
	// A row of the day each, and for those of the last hours one by time.
	if got := []int{count("u", now, devices...), count("u", now), count("nobody", now, devices...)}; !slices.Equal(got, []int{5, 0, 0}) {
		t.Errorf("%v rows, want 5, 0, 0", got)
	}
	if err := log.Forget(t.Context(), "u", devices, now); err != nil {
		t.Fatal(err)
	}
	if got := []int{count("u", now, devices...), count("u", now, "lost"), count("other", now, "phone")}; !slices.Equal(got, []int{0, 2, 2}) {
		t.Errorf("%v rows afterwards, want 0, 2, 2", got)
	}
	if left == nil {
		return
	}
	if n := left(); n != 5 { // with the oldest by time: no row of it can live
		t.Errorf("%d partitions are left, want two of each other device, and one that its time has ended", n)
	}
}

// A row is found as long as it can live, by the clock that is furthest behind and by
// UTC's before midnight.
func TestForgetTheOldestRows(t *testing.T) {
	midnight := start.Truncate(24 * time.Hour)
	for _, tt := range []struct {
		why  string
		rule Rule
		at   time.Time
		zone *time.Location
		ttl  time.Duration
	}{
		{"of the day before in the west", deviceDay(9), midnight.Add(time.Minute), time.FixedZone("west", -12*3600), daysTTL},
		{"of the hour before midnight", deviceMinute(9), midnight.Add(-time.Minute), nil, timesTTL},
	} {
		m := &tables{}
		r := &Request{Owner: "u", ID: "a", Type: "news", Priority: 3, At: tt.at, Zone: tt.zone, Devices: []Device{{Hash: DeviceHash("phone")}}}
		decide(t, logging(t, nil, m, tt.rule), r)
		log, last := NewDeviceLog(m, 1), tt.at.Add(tt.ttl-time.Minute/2)
		if n, err := log.Count(t.Context(), "u", []string{"phone"}, last); n != 1 || err != nil {
			t.Errorf("%s: %d rows, %v, want 1", tt.why, n, err)
		}
		if err := log.Forget(t.Context(), "u", []string{"phone"}, last); err != nil || len(m.rows) != 0 {
			t.Errorf("%s: %d partitions are left, %v", tt.why, len(m.rows), err)
		}
	}
}
