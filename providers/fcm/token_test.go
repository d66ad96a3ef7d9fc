package fcm

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"go.uber.org/goleak"
	"golang.org/x/oauth2"

	"github.com/pushfleet/pushfleet/providers/h2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func keyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(rsaKey())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// serviceAccount is the file of an account whose tokens come from uri.
func serviceAccount(t testing.TB, uri string) []byte {
	t.Helper()
	file, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "shop-1", "private_key_id": "kid1",
		"private_key":  string(keyPEM(t)),
		"client_email": "push@shop-1.iam.example", "token_uri": uri,
	})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTokenIsReplacedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fetched []time.Duration
		start := time.Now()
		k := startKeeper(func(context.Context) (*oauth2.Token, error) {
			fetched = append(fetched, time.Since(start))
			return &oauth2.Token{AccessToken: fmt.Sprintf("t%d", len(fetched)), Expiry: time.Now().Add(time.Hour)}, nil
		})
		<-k.first
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got := string(k.authorization(time.Now())); got != "Bearer t4" {
			t.Errorf("after 3 h: %q", got)
		}
		closeNow(t, k)
		want := []time.Duration{0, 55 * time.Minute, 110 * time.Minute, 165 * time.Minute}
		if fmt.Sprint(fetched) != fmt.Sprint(want) {
			t.Errorf("fetched at %v, want %v", fetched, want)
		}
	})
}

func TestFailedFetchBacksOffAndKeepsTheOldToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var down atomic.Bool
		k := startKeeper(func(context.Context) (*oauth2.Token, error) {
			calls.Add(1)
			if down.Load() {
				return nil, &oauth2.RetrieveError{Response: &http.Response{StatusCode: 400}, ErrorCode: "invalid_grant", Body: []byte("secret")}
			}
			return &oauth2.Token{AccessToken: "good", Expiry: time.Now().Add(time.Hour)}, nil
		})
		<-k.first
		down.Store(true)
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if string(k.authorization(time.Now())) != "Bearer good" || !k.faulty() {
			t.Error("a token that is still good was given up, or the fault is not seen")
		}
		if n := calls.Load(); n < 5 || n > 30 {
			t.Errorf("%d fetches in four minutes of failure", n)
		}
		if text := k.failure().Error(); strings.Contains(text, "secret") || !strings.Contains(text, "invalid_grant") {
			t.Errorf("error %q", text)
		}
		time.Sleep(2 * time.Minute)
		if k.authorization(time.Now()) != nil {
			t.Error("an ended token is still used")
		}
		down.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if k.authorization(time.Now()) == nil || k.failure() != nil {
			t.Error("not healed")
		}
		closeNow(t, k)
	})
}

// A token that could never be sent does not count: the route waits for a better
// one. Otherwise each message would be refused for good.
func TestTokenThatCannotBeSentIsNone(t *testing.T) {
	for name, token := range map[string]string{
		"empty": "", "with a line's end": "a\r\nb", "over 8 KiB": strings.Repeat("x", h2.MaxValue),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := startKeeper(func(context.Context) (*oauth2.Token, error) { return &oauth2.Token{AccessToken: token}, nil })
				defer closeNow(t, k)
				<-k.first
				if got := k.authorization(time.Now()); got != nil || k.failure() == nil {
					t.Errorf("a header of %d bytes, %v", len(got), k.failure())
				}
			})
		})
	}
}

func TestRefusedTokenIsFetchedOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		k := startKeeper(func(context.Context) (*oauth2.Token, error) {
			time.Sleep(time.Second)
			return &oauth2.Token{AccessToken: fmt.Sprintf("t%d", calls.Add(1)), Expiry: time.Now().Add(time.Hour)}, nil
		})
		<-k.first
		old := k.authorization(time.Now())
		var resumed atomic.Int64
		for range 100 {
			k.refused(old, func() {
				if string(k.authorization(time.Now())) != "Bearer t2" {
					t.Error("resumed with the refused token")
				}
				resumed.Add(1)
			})
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if resumed.Load() != 100 || calls.Load() != 2 {
			t.Errorf("%d resumed, %d fetches", resumed.Load(), calls.Load())
		}
		k.refused(old, func() { resumed.Add(1) }) // a late refusal of the old token
		if resumed.Load() != 101 || calls.Load() != 2 {
			t.Error("a newer token was there, and it was not used at once")
		}
		k.refused(k.authorization(time.Now()), func() { resumed.Add(1) })
		closeNow(t, k)
		if resumed.Load() != 102 {
			t.Error("close keeps what was parked")
		}
		k.refused([]byte("x"), func() { resumed.Add(1) })
		if resumed.Load() != 103 {
			t.Error("parked for ever after close")
		}
	})
}

// tokenEndpoint answers a correct request with the token abc.
func tokenEndpoint(t *testing.T, protocol int) *httptest.Server {
	var s *httptest.Server
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || r.ProtoMajor != protocol {
			t.Errorf("%s, %v", r.Proto, err)
		}
		var claims jwt.MapClaims
		_, err := jwt.ParseWithClaims(r.Form.Get("assertion"), &claims, func(*jwt.Token) (any, error) { return &rsaKey().PublicKey, nil }, jwt.WithValidMethods([]string{"RS256"}))
		if err != nil {
			t.Error(err)
		}
		if r.Form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || claims["iss"] != "push@shop-1.iam.example" ||
			claims["scope"] != scope || claims["aud"] != s.URL+"/token" {
			t.Errorf("%v with %v", r.Form.Get("grant_type"), claims)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"abc","token_type":"Bearer","expires_in":3600}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// The token endpoint is reached over HTTP/2, unless the options or the endpoint
// say otherwise.
func TestTokenRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		protocol int
		start    func(*httptest.Server)
		options  func(*httptest.Server, *Options)
	}{
		"HTTP/2, a connection each": {2, func(s *httptest.Server) {
			s.EnableHTTP2 = true
			s.StartTLS()
		}, func(s *httptest.Server, o *Options) {
			o.Pool.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig
		}},
		"a client of the caller's": {1, (*httptest.Server).StartTLS, func(s *httptest.Server, o *Options) { o.HTTP = s.Client() }},
		"without TLS":              {1, (*httptest.Server).Start, func(*httptest.Server, *Options) {}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tokenEndpoint(t, tc.protocol)
			tc.start(s)
			a, err := readAccount(serviceAccount(t, s.URL+"/token"))
			if err != nil {
				t.Fatal(err)
			}
			var o Options
			tc.options(s, &o)
			fetch, err := o.fetch(a)
			if err != nil {
				t.Fatal(err)
			}
			k := startKeeper(fetch)
			defer closeNow(t, k)
			<-k.first
			if got := string(k.authorization(time.Now())); got != "Bearer abc" || k.failure() != nil {
				t.Errorf("%q, %v", got, k.failure())
			}
		})
	}
}

func TestAccountsThatAreRefused(t *testing.T) {
	good := string(serviceAccount(t, "https://oauth2.example/token"))
	for why, file := range map[string]string{
		"empty":        "",
		"no JSON":      "secret-looking text",
		"a user":       `{"type":"authorized_user"}`,
		"no key":       `{"client_email":"a@b"}`,
		"bad uri":      strings.Replace(good, "https://oauth2.example", "ftp://x", 1),
		"bad project":  strings.Replace(good, "shop-1\"", `../x"`, 1),
		"not a key":    `{"client_email":"a@b","project_id":"p","private_key":"secret-looking text"}`,
		"path project": strings.Replace(good, `"shop-1"`, `"a/b"`, 1),
	} {
		_, err := New(Options{ServiceAccount: []byte(file)})
		if err == nil {
			t.Errorf("%s: accepted", why)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error repeats the file: %v", why, err)
		}
	}
	var refusal *authError
	if errors.As(tokenError(errors.New("Bearer abc")), &refusal) || strings.Contains(tokenError(errors.New("Bearer abc")).Error(), "abc") {
		t.Error("a foreign error passes through")
	}
}

func closeNow(t *testing.T, k *tokenKeeper) {
	t.Helper()
	if err := k.close(context.Background()); err != nil {
		t.Error(err)
	}
}

// A token endpoint that accepts a request and does not answer must not delay
// the end of a worker: closing the client cancels the request.
func TestCloseEndsAFetch(t *testing.T) {
	for _, k := range []struct {
		why    string
		tls    bool
		client *http.Client
	}{{"plain HTTP", false, nil}, {"over HTTP/2", true, nil}, {"over a client of the caller's", false, &http.Client{Timeout: time.Hour}}} {
		t.Run(k.why, func(t *testing.T) {
			asked, ended, end := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm() // without it the server does not notice the cancellation
				asked <- struct{}{}
				select {
				case <-r.Context().Done():
					close(ended)
				case <-end:
				}
			}))
			opt := Options{HTTP: k.client, Pool: h2.Options{URL: "https://127.0.0.1:1", Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 1}}}}
			if k.tls {
				s.EnableHTTP2 = true
				s.StartTLS()
				opt.Pool.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
				opt.Pool.TLS.RootCAs.AddCert(s.Certificate())
			} else {
				s.Start()
			}
			defer s.Close()
			defer close(end)
			opt.ServiceAccount = serviceAccount(t, s.URL)
			c, err := New(opt)
			if err != nil {
				t.Fatal(err)
			}
			<-asked
			closed := make(chan error, 1)
			go func() { closed <- c.Close(t.Context()) }()
			for _, what := range []string{"Close", "the request"} {
				select {
				case err := <-closed:
					if err != nil {
						t.Error(err)
					}
				case <-ended:
					ended = nil
				case <-time.After(hang):
					t.Fatalf("%s does not end", what)
				}
			}
		})
	}
}

// hang is how long a test waits for something that should not happen.
const hang = time.Minute

type ignorant chan struct{}

func (i ignorant) RoundTrip(*http.Request) (*http.Response, error) {
	<-i
	return nil, errors.New("too late")
}

// An HTTP client of the caller may ignore its context. Ours waits no longer
// than its own.
func TestCloseWaitsNoLongerThanItsContext(t *testing.T) {
	stuck := make(ignorant)
	defer close(stuck)
	c, err := New(Options{ServiceAccount: serviceAccount(t, "https://tokens.example"), HTTP: &http.Client{Transport: stuck},
		Pool: h2.Options{Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no more time")
	cancel(why)
	closed := make(chan error, 1)
	go func() { closed <- c.Close(ctx) }()
	select {
	case err := <-closed:
		if !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	case <-time.After(hang):
		t.Fatal("Close waits for the token endpoint")
	}
}

// The timeout of a fetch also cancels the request.
func TestFetchTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetch := fetchOver(account{Email: "x", PrivateKey: string(keyPEM(t)), TokenURI: "https://tokens.example"},
			&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})})
		start := time.Now()
		k := startKeeper(fetch)
		<-k.first
		if waited := time.Since(start); waited != fetchTimeout || !strings.Contains(k.failure().Error(), "timeout") {
			t.Errorf("after %v: %v", waited, k.failure())
		}
		closeNow(t, k)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
