package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Requests are let through one by one, and few wait. Who gives up gives its place back.
func TestLineIsBounded(t *testing.T) {
	l := newLine()
	enter := func(ctx context.Context, within time.Duration) (working context.Context, leave func(), says string) {
		t.Helper()
		w := httptest.NewRecorder()
		working, leave = l.enter(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/lookup", nil), within)
		if refused := leave == nil; refused != (w.Code == http.StatusServiceUnavailable) || refused != (working == nil) {
			t.Fatalf("answered %d", w.Code)
		}
		return working, leave, w.Body.String()
	}
	working, leave, says := enter(t.Context(), time.Hour)
	if leave == nil {
		t.Fatalf("the first one is refused: %s", says)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 * waiting {
		if _, _, says := enter(gone, time.Hour); !strings.Contains(says, "took too long") {
			t.Fatalf("who has gone is told %q", says)
		}
	}
	if _, _, says := enter(t.Context(), time.Nanosecond); !strings.Contains(says, "took too long") {
		t.Errorf("who waits for too long is told %q", says)
	}
	for range waiting - 1 {
		l.places <- struct{}{}
	}
	if _, _, says := enter(t.Context(), time.Hour); !strings.Contains(says, "too many wait") {
		t.Errorf("one too many is told %q", says)
	}
	if working.Err() != nil {
		t.Errorf("while it works: %v", working.Err())
	}
	leave()
	if working.Err() == nil {
		t.Error("its context goes on when it has left")
	}
	if _, leave, says = enter(t.Context(), time.Hour); leave == nil {
		t.Fatalf("the next one is refused: %s", says)
	}
	leave()
}
