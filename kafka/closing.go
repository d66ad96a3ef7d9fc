package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// closeFor is how long a client that fetches may take to close: to leave its group, and to tell
// brokers that its fetch sessions are over.
const closeFor = 2 * time.Second

// closing bounds the end of a client that fetches. The client waits for brokers then, also for
// one that hangs, and for a new connection to it without any time-out of that end's own.
type closing struct {
	life context.Context // of the client
	end  context.CancelFunc
}

func newClosing() closing {
	life, end := context.WithCancel(context.Background())
	return closing{life, end}
}

// option is the client's.
func (c closing) option() kgo.Opt { return kgo.WithContext(c.life) }

// run closes the client by shut. What it has under way after within is given up.
func (c closing) run(shut func(), within time.Duration) {
	defer time.AfterFunc(within, c.end).Stop()
	shut()
	c.end()
}
