package dashboard

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// oneKey are Keys of one admin, until it goes.
type oneKey struct{ gone atomic.Bool }

func (k *oneKey) With(string) (Holder, error) {
	if k.gone.Load() {
		return Holder{}, ErrUnknownKey
	}
	return Holder{"hand", true, []byte("h")}, nil
}

func (k *oneKey) Named(string) (Holder, bool) {
	h, err := k.With("")
	return h, err == nil
}

// Who waits behind others acts by its key as it is then. Nothing behind the page is asked: it
// would panic.
func TestWhoWaitsActsByItsKeyAsItIsThen(t *testing.T) {
	for path, body := range map[string]string{
		"/letters": `{"act": "dismiss", "lane": "promo", "do": true, "by": "ann", "until": "2026-11-21T08:00:00Z"}`,
		"/fanouts": `{"id": "01999999-9999-7999-8999-999999999999", "order": "cancel", "confirm": "cancel 999999", "by": "ann"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			keys := &oneKey{}
			s, err := NewSite(Options{Feed: NewFeed(), Letters: struct{ Letters }{}, Fanouts: struct{ Fanouts }{}, Access: NewNamedAccess(keys, true), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			turn := map[string]line{"/letters": s.letters, "/fanouts": s.lookups}[path].turn
			turn <- struct{}{} // somebody else's
			answer, ended := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(ended)
				r := httptest.NewRequest("POST", path, strings.NewReader(body))
				r.Header.Set("Authorization", "Bearer h")
				r.Header.Set("Content-Type", "application/json")
				s.ServeHTTP(answer, r)
			}()
			time.Sleep(time.Second)
			keys.gone.Store(true)
			<-turn
			<-ended
			if answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "nothing was done") {
				t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
			}
		})
	}
}
