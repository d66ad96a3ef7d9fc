package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/push"
)

// failure is what went wrong with a request. None of them says that a row will
// never be durable, so the answer to each is a retry; they differ in what else
// is done. The order is that of failureNames.
type failure uint8

const (
	noFailure   failure = iota
	timedOut            // no answer, or too few replicas answered: may be applied
	overloaded          // the coordinator refuses more work
	unavailable         // too few replicas are up
	unconnected         // no connection, or it broke under the request
	refused             // schema, permission, or anything unforeseen: needs a person
	failures            // how many there are
)

var failureNames = [failures]string{"ok", "timeout", "overloaded", "unavailable", "connection", "refused"}

func (f failure) String() string { return failureNames[f] }

// overload reports whether fewer concurrent requests are needed: the server
// says so, or does not complete them. Replicas that are down count too, because
// the others do their work meanwhile and write hints on top.
func (f failure) overload() bool { return f == timedOut || f == overloaded || f == unavailable }

// unanswered reports whether the server said nothing at all to a request that
// ended so: the session may be one that never heals. A server that answers that
// its replicas took too long is reached.
func unanswered(err error) bool {
	var frame gocql.RequestError
	f := classify(err)
	return (f == timedOut || f == unconnected) && !errors.As(err, &frame)
}

// noAnswer says what an ended context means for an attempt that was bounded by
// this time-out.
func noAnswer(err error, timeout time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", timeout, err)
	}
	return err
}

// survived makes an attempt. The driver panics where the rows of an answer end too early:
// that is an attempt that failed, and no end of the worker.
func survived(attempt func() error) (err error) {
	defer func() {
		if p := push.Recovered("reading an answer of Cassandra", recover()); p != nil {
			err = p
		}
	}()
	return attempt()
}

// classify maps an error of gocql to a failure. A client that stopped waiting
// and a coordinator that stopped waiting are the same to us: not yet durable.
func classify(err error) failure {
	if err == nil {
		return noFailure
	}
	var frame gocql.RequestError
	if errors.As(err, &frame) {
		switch frame.Code() {
		case gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout:
			return timedOut
		case gocql.ErrCodeOverloaded:
			return overloaded
		case gocql.ErrCodeUnavailable, gocql.ErrCodeBootstrapping, gocql.ErrCodeTruncate,
			gocql.ErrCodeWriteFailure, gocql.ErrCodeReadFailure, gocql.ErrCodeCDCWriteFailure:
			return unavailable
		}
		return refused
	}
	for _, e := range []error{gocql.ErrTimeoutNoResponse, gocql.ErrTooManyTimeouts, gocql.ErrNoStreams, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return timedOut
		}
	}
	for _, e := range []error{gocql.ErrNoConnections, gocql.ErrNoConnectionsStarted, gocql.ErrConnectionClosed,
		gocql.ErrSessionClosed, gocql.ErrUnavailable, net.ErrClosed, io.EOF, io.ErrUnexpectedEOF, context.Canceled} {
		if errors.Is(err, e) {
			return unconnected
		}
	}
	var netErr net.Error
	if errors.As(err, &netErr) {
		return unconnected
	}
	return refused
}
