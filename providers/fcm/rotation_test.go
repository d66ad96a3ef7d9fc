package fcm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
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

// While the token endpoint is away, Google refuses what the former key has got: that key
// is the one that is named, not the one that waits.
func TestARefusalNamesTheKeyOfItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var back atomic.Bool
		endpoint := roundTripper(func(r *http.Request) (*http.Response, error) {
			if !back.Load() {
				return nil, errors.New("no route to host")
			}
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
				Body: io.NopCloser(strings.NewReader(`{"access_token":"new","token_type":"Bearer","expires_in":3600}`))}, nil
		})
		k := startKeeper(func(context.Context) (*oauth2.Token, error) {
			return &oauth2.Token{AccessToken: "abc", Expiry: time.Now().Add(time.Hour)}, nil
		})
		defer closeNow(t, k)
		c := testCodec()
		c.tokens, c.refusal = k, calls.NewRefusal(slog.New(slog.NewTextHandler(&log, nil)))
		former := "kid0"
		c.key.Store(&former)
		c.asked.Store(&former)
		client := &Client{tokens: k, codec: c, opt: Options{HTTP: &http.Client{Transport: endpoint}}}
		synctest.Wait()
		if err := client.SetAccount(serviceAccount(t, "https://oauth.example/token"), nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		refuse := func(want string) {
			t.Helper()
			r := &exchange.Draft{}
			if _, ok := c.Encode(delivery(push.Message{Title: "t"}), r); !ok {
				t.Fatal("there is no token")
			}
			r.Answer = h2.Answer{Status: 403, Header: make([][]byte, 2), Body: []byte(envelope("PERMISSION_DENIED", "x"))}
			log.Reset()
			if result, _ := c.Read(delivery(push.Message{Title: "t"}), r); !result.Halt || !strings.Contains(strings.ReplaceAll(log.String(), `"`, ""), "key="+want) {
				t.Errorf("%+v, said %q, want the key %s", result, log.String(), want)
			}
		}
		refuse("kid0")
		back.Store(true)
		time.Sleep(lastRetry)
		synctest.Wait()
		refuse("kid1")
	})
}

// The account in the file is refused a token while one of the account before is still good:
// what goes out is accepted, and yet the refusal says whose it is.
func TestARefusalIsNamedWhileAFormerTokenIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoint := roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 400, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
				Body: io.NopCloser(strings.NewReader(`{"error":"invalid_grant"}`))}, nil
		})
		k := startKeeper(func(context.Context) (*oauth2.Token, error) {
			return &oauth2.Token{AccessToken: "abc", Expiry: time.Now().Add(time.Hour)}, nil
		})
		defer closeNow(t, k)
		c := testCodec()
		c.tokens = k
		former := "kid0"
		c.key.Store(&former)
		c.asked.Store(&former)
		client := &Client{tokens: k, codec: c, opt: Options{HTTP: &http.Client{Transport: endpoint}}}
		synctest.Wait()
		if key, todo := client.RefusedKey(); client.Refused() != "" || key != "" || todo != "" {
			t.Fatalf("refused is %q, key %q: %s", client.Refused(), key, todo)
		}
		if err := client.SetAccount(serviceAccount(t, "https://oauth.example/token"), nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.refusal.Clear() // as an acceptance does
		if key, todo := client.RefusedKey(); !strings.Contains(client.Refused(), "HTTP 400") || !strings.HasPrefix(key, "kid1 of ") || todo == "" {
			t.Errorf("refused is %q, key %q: %s", client.Refused(), key, todo)
		}
		k.exchange(func(context.Context) (*oauth2.Token, error) {
			return &oauth2.Token{AccessToken: "def", Expiry: time.Now().Add(time.Hour)}, nil
		}, nil)
		synctest.Wait()
		if key, _ := client.RefusedKey(); client.Refused() != "" || key != "" {
			t.Errorf("with an account that is accepted: refused is %q, key %q", client.Refused(), key)
		}
	})
}
