package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errAway = errors.New("no hosts available")

// fakeTables note statements, and fail those that have a text.
type fakeTables struct {
	mu      sync.Mutex
	said    []string // guarded by mu; statements with their values
	failing string   // guarded by mu
	flying  int      // guarded by mu
	most    int      // guarded by mu; at once
	slow    time.Duration
}

func (f *fakeTables) Exec(ctx context.Context, statement string, values ...any) error {
	return f.Query(ctx, statement, values, nil, func() {})
}

func (f *fakeTables) Query(ctx context.Context, statement string, values, _ []any, _ func()) error {
	f.mu.Lock()
	said := fmt.Sprint(statement, values)
	f.said = append(f.said, said)
	fails := f.failing != "" && strings.Contains(said, f.failing)
	f.flying++
	f.most = max(f.most, f.flying)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.flying--
		f.mu.Unlock()
	}()
	select {
	case <-time.After(f.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	if fails {
		return errAway
	}
	return nil
}

func addressed(ids ...string) (list []Addressed) {
	for _, id := range ids {
		list = append(list, Addressed{Key{"u" + id, "shop"}, Entry{Position: PositionOf(id, time.Now()), Type: "news", Content: []byte(`{}`)}})
	}
	return list
}

// Each entry says for itself whether it is durable; news that cannot be told are no
// failure, and tell of what was written alone.
func TestPutSaysWhatIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTables{failing: "ub shop"}
		s := New(Options{Tables: f})
		errs := s.Put(t.Context(), addressed("a", "b", "c"))
		if errs[0] != nil || !errors.Is(errs[1], errAway) || errs[2] != nil {
			t.Errorf("%v", errs)
		}
		news := f.said[len(f.said)-1]
		for key, told := range map[string]bool{"ua": true, "ub": false, "uc": true} {
			if strings.Contains(news, fmt.Sprint(int64(Key{key, "shop"}.Hash()))) != told {
				t.Errorf("of %s: %s", key, news)
			}
		}
		f.failing = "inbox_news"
		if errs := s.Put(t.Context(), addressed("a")); errs[0] != nil {
			t.Errorf("news cannot be told: %v", errs[0])
		}
		if err := s.Mark(t.Context(), Key{"ua", "shop"}, &Marks{At: time.Now(), Read: []Position{{At: time.Now(), ID: "a"}}}); err != nil {
			t.Errorf("news cannot be told: %v", err)
		}
	})
}

// As many statements are under way at once as may be, and nobody waits for a place who has
// gone.
func TestStatementsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTables{slow: time.Second}
		s := New(Options{Tables: f, Concurrency: 3})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		durable := 0
		for _, err := range s.Put(ctx, addressed("1", "2", "3", "4", "5", "6", "7", "8", "9")) {
			if err == nil {
				durable++
			}
		}
		if durable != 3 || f.most != 3 || f.flying != 0 {
			t.Errorf("%d are durable, %d at once, %d under way", durable, f.most, f.flying)
		}
	})
}

// Entries live for the rest of their time, and an hour at least; so do marks. A failure of
// any statement is one of the call.
func TestEntriesDieByTheirAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTables{}
		s := New(Options{Tables: f, TTL: 48 * time.Hour})
		k := Key{"u", "shop"}
		for ago, want := range map[time.Duration]string{0: " 172800]", 40 * time.Hour: " 28800]", 60 * time.Hour: " 3600]"} {
			e := addressed("x")
			e[0].At = time.Now().Add(-ago)
			if errs := s.Put(t.Context(), e); errs[0] != nil || !strings.HasSuffix(f.said[len(f.said)-2], want) {
				t.Errorf("%v ago: %v %s, want %s", ago, errs[0], f.said[len(f.said)-2], want)
			}
		}
		for _, failing := range []string{"SET read", "SET unread", "INTO inbox_read"} {
			f.failing = failing
			p := Position{At: time.Now(), ID: "a"}
			if err := s.Mark(t.Context(), k, &Marks{At: time.Now(), Read: []Position{p}, Unread: []Position{p}, UpTo: p}); !errors.Is(err, errAway) {
				t.Errorf("%s: %v", failing, err)
			}
		}
		f.failing = "SELECT"
		_, _, page := s.Page(t.Context(), k, nil, Top(time.Now()), 1)
		_, news := s.News(t.Context())
		for what, err := range map[string]error{"page": page, "news": news, "check": s.Check(t.Context())} {
			if !errors.Is(err, errAway) {
				t.Errorf("%s: %v", what, err)
			}
		}
		f.failing = "DELETE"
		if err := s.Forget(t.Context(), k); !errors.Is(err, errAway) {
			t.Errorf("forget: %v", err)
		}
	})
}

// News are looked for from as far back as clocks differ, up to what a clock that is ahead has
// written: what it writes is in a later slot than now.
func TestWhereNewsAreLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 4 { // at the beginning of a slot and in its midst
			f := &fakeTables{}
			if _, err := New(Options{Tables: f}).News(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := []string{}
			for slot := slotOf(time.Now().Add(-newsBack)); slot <= slotOf(time.Now())+1; slot++ {
				want = append(want, fmt.Sprint(selectNews, []any{slot}))
			}
			if !slices.Equal(f.said, want) {
				t.Errorf("%q, want %q", f.said, want)
			}
			time.Sleep(slotTime / 2)
		}
	})
}
