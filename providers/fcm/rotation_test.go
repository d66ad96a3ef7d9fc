package fcm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"
)

// Another account is asked at once, whatever the former one waits for; its first token
// is told, once, and the former one's token is used until then.
func TestAnotherAccountIsAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := func(name string) fetchFunc {
			return func(context.Context) (*oauth2.Token, error) {
				return &oauth2.Token{AccessToken: name, Expiry: time.Now().Add(time.Hour)}, nil
			}
		}
		refused := &oauth2.RetrieveError{Response: &http.Response{StatusCode: 400}, ErrorCode: "invalid_grant"}
		k := startKeeper(token("first"))
		defer closeNow(t, k)
		<-k.first
		told := 0
		tried := make(chan struct{}, 8)
		k.exchange(func(context.Context) (*oauth2.Token, error) { tried <- struct{}{}; return nil, refused }, func() { told++ })
		<-tried
		synctest.Wait()
		if got := string(k.authorization(time.Now())); got != "Bearer first" || told != 0 || !k.faulty() {
			t.Errorf("while the new account is refused: %q, told %d times, faulty %v", got, told, k.faulty())
		}
		start := time.Now()
		k.exchange(token("third"), func() { told++ })
		synctest.Wait()
		if got := string(k.authorization(time.Now())); got != "Bearer third" || told != 1 || k.faulty() || time.Since(start) > 0 {
			t.Errorf("with another one: %q, told %d times, faulty %v, after %v", got, told, k.faulty(), time.Since(start))
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}

// A fetch of the former account that ends late says nothing of the new one.
func TestALateFetchOfTheFormerAccountIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		k := startKeeper(func(context.Context) (*oauth2.Token, error) { <-answer; return nil, errors.New("too late") })
		defer closeNow(t, k)
		synctest.Wait()
		told := false
		k.exchange(func(context.Context) (*oauth2.Token, error) {
			return &oauth2.Token{AccessToken: "new", Expiry: time.Now().Add(time.Hour)}, nil
		}, func() { told = true })
		close(answer)
		synctest.Wait()
		if got := string(k.authorization(time.Now())); got != "Bearer new" || k.failure() != nil || !told {
			t.Error(fmt.Sprintf("%q", got), k.failure(), told)
		}
	})
}
