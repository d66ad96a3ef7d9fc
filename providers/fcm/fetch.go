package fcm

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/pushfleet/pushfleet/providers/h2"
)

// fetchFunc fetches one access token.
type fetchFunc func(context.Context) (*oauth2.Token, error)

// fetchOver fetches through a client of the caller's.
func fetchOver(a account, client *http.Client) fetchFunc {
	conf := jwt.Config{
		Email: a.Email, PrivateKey: []byte(a.PrivateKey), PrivateKeyID: a.KeyID,
		Scopes: []string{scope}, TokenURL: a.TokenURI,
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		return conf.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, client)).Token()
	}
}

// fetchAlone fetches each token over an HTTP/2 connection of its own: it is
// needed about once an hour, and a connection that is kept so long without use
// may be dead without anybody noticing until a token is urgent.
func fetchAlone(a account, conf *tls.Config) (fetchFunc, error) {
	u, err := url.Parse(a.TokenURI)
	if err != nil {
		return nil, fmt.Errorf("reading token_uri: %w", err)
	}
	opt := h2.Options{
		URL: "https://" + u.Host, TLS: conf, Connections: 1, StreamsPerConnection: 1,
		Timeout: fetchTimeout, Lanes: []h2.Lane{{Name: "tokens", Weight: 1, Queue: 1}},
	}
	return func(ctx context.Context) (*oauth2.Token, error) {
		pool, err := h2.NewPool(opt)
		if err != nil {
			return nil, err
		}
		// A canceled context cuts the connection, which is idle by then.
		defer pool.Close(canceled())
		return fetchOver(a, &http.Client{Transport: &h2.Transport{Pool: pool}})(ctx)
	}, nil
}

// canceled is a context that is over.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
