package fcm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"

	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

const (
	scope = "https://www.googleapis.com/auth/firebase.messaging"
	// early is how long before its end a token is replaced.
	early = 5 * time.Minute
	// fetchTimeout bounds one request to the token endpoint.
	fetchTimeout = 10 * time.Second
	// The pauses between failed fetches.
	firstRetry, lastRetry = time.Second, time.Minute
)

// tokenKeeper holds one access token and replaces it before it ends. One
// goroutine talks to the token endpoint; senders only ever look.
type tokenKeeper struct {
	fetch atomic.Pointer[fetchFunc] // of the account in use; never nil

	current atomic.Pointer[accessToken]
	first   chan struct{} // closed when the first fetch has ended either way
	refresh chan struct{} // asks for a new token now
	stop    context.CancelFunc
	done    chan struct{} // closed by run when it ends

	mu      sync.Mutex
	parked  []func() // called when the next fetch has ended
	stopped bool
	lastErr error
	renewed func() // called once when there is a token of the account in use; nil = there is, or nobody asked
}

type accessToken struct {
	header []byte // "Bearer …"
	expiry time.Time
}

// startKeeper starts the goroutine.
func startKeeper(fetch fetchFunc) *tokenKeeper {
	ctx, cancel := context.WithCancel(context.Background())
	k := &tokenKeeper{
		stop:  cancel,
		first: make(chan struct{}), refresh: make(chan struct{}, 1), done: make(chan struct{}),
	}
	k.fetch.Store(&fetch)
	go k.run(ctx)
	return k
}

// exchange fetches tokens by another account from now on, the first of them at once;
// the one there is stays in use until then. renewed, if set, is called once when
// there is a token of the new account.
func (k *tokenKeeper) exchange(fetch fetchFunc, renewed func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fetch.Store(&fetch)
	k.lastErr, k.renewed = nil, renewed // what failed was the former account
	select {
	case k.refresh <- struct{}{}:
	default:
	}
}

// close ends the fetch that is under way and gives back what is parked. It
// waits for the fetch until ctx ends: a client of the caller's may not listen.
func (k *tokenKeeper) close(ctx context.Context) (err error) {
	k.mu.Lock()
	k.stopped, k.renewed = true, nil
	k.mu.Unlock()
	k.stop()
	select {
	case <-k.done:
	case <-ctx.Done():
		err = fmt.Errorf("token fetch stopped: %w", context.Cause(ctx))
	}
	k.release(k.fetch.Load(), nil)
	return err
}

func (k *tokenKeeper) run(ctx context.Context) {
	defer close(k.done)
	backoff := push.Backoff{First: firstRetry, Longest: lastRetry}
	failures := 0
	for first := true; ; first = false {
		fetch := k.fetch.Load()
		wait, err := k.renew(ctx, *fetch)
		if err != nil {
			failures++
			wait = backoff.After(failures)
		} else {
			failures = 0
		}
		if !k.release(fetch, err) {
			failures, wait = 0, 0 // the account was exchanged meanwhile
		}
		if first {
			close(k.first)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-k.refresh:
			t.Stop()
		}
	}
}

// renew fetches one token and says when the next is due.
func (k *tokenKeeper) renew(ctx context.Context, fetch fetchFunc) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	t, err := fetch(ctx)
	if err != nil {
		return 0, tokenError(errors.Join(err, ctx.Err()))
	}
	header := append([]byte("Bearer "), t.AccessToken...)
	if !printable(t.AccessToken) || len(header) > h2.MaxValue {
		return 0, errors.New("fetching access token: the answer has no usable token")
	}
	k.current.Store(&accessToken{header: header, expiry: t.Expiry})
	left := time.Until(t.Expiry)
	if t.Expiry.IsZero() {
		left = time.Hour
	}
	// A token that hardly lives longer than the margin is used half its life.
	return max(left-early, left/2, time.Second), nil
}

func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// tokenError keeps only those parts of an error that cannot hold a credential.
func tokenError(err error) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) && answer.Response != nil {
		return &authError{status: answer.Response.StatusCode, code: answer.ErrorCode}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("fetching access token: timeout")
	}
	return errors.New("fetching access token: no usable answer")
}

// release ends a fetch: parked requests go on with the current token. It reports
// false when the fetch was by an account that is no longer in use, and says nothing
// of the one that is: then they wait for its own.
func (k *tokenKeeper) release(fetch *fetchFunc, err error) bool {
	k.mu.Lock()
	if k.fetch.Load() != fetch {
		k.mu.Unlock()
		return false
	}
	k.lastErr = err
	renewed := k.renewed
	if err != nil {
		renewed = nil
	} else {
		k.renewed = nil
	}
	parked := k.parked
	k.parked = nil
	// Whoever asked during this fetch has its answer, too.
	select {
	case <-k.refresh:
	default:
	}
	k.mu.Unlock()
	if renewed != nil {
		renewed()
	}
	for _, resume := range parked {
		resume()
	}
	return true
}

// authorization returns the header value to use at now, or nil when there is
// none that is still good.
func (k *tokenKeeper) authorization(now time.Time) []byte {
	t := k.current.Load()
	if t == nil || !t.expiry.IsZero() && !now.Before(t.expiry) {
		return nil
	}
	return t.header
}

// refused is called when Google did not take header. resume is called once,
// when a newer token is there or could not be got: at once if it is there
// already.
func (k *tokenKeeper) refused(header []byte, resume func()) {
	k.mu.Lock()
	t := k.current.Load()
	if k.stopped || t != nil && !bytes.Equal(t.header, header) {
		k.mu.Unlock()
		resume()
		return
	}
	k.parked = append(k.parked, resume)
	select {
	case k.refresh <- struct{}{}:
	default:
	}
	k.mu.Unlock()
}

// failure is why the latest fetch failed, or nil.
func (k *tokenKeeper) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lastErr
}
