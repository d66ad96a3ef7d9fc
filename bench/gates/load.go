//go:build linux

package gates

import (
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

const (
	batchSize = 10_000
	// usualInSpike is how many notifications of a batch of the spike are of the
	// usual traffic: the spike is on top of it, ten times of it together.
	usualInSpike = batchSize / spikeTimes
	spikeTimes   = 10
)

// types are those of the notifications. A user gets one after the other.
var types = [...]string{"order_update", "promotion", "chat", "news"}

// load is a batch of one stage worker, used again and again, and which user each
// item is for.
type load struct {
	pipeline.Batch
	users []int32
	text  []byte // of the ids
}

func newLoad() *load {
	return &load{Batch: pipeline.Batch{Items: make([]pipeline.Item, batchSize)}, users: make([]int32, batchSize)}
}

// fill makes the k-th batch of the usual traffic: all users come by turns, and
// nobody twice in a batch.
func (l *load) fill(p *people, k int) {
	l.make(p, func(i int) notification { return p.usualAt(k*batchSize + i) })
}

// fillSpike makes the k-th batch of the spike. The usual traffic goes on in it
// from a place that is a multiple of the batch size.
func (l *load) fillSpike(p *people, from, k int) {
	l.make(p, func(i int) notification {
		if i%spikeTimes == 0 {
			return p.usualAt(from + k*usualInSpike + i/spikeTimes)
		}
		return p.hotAt(k*(batchSize-usualInSpike) + i - i/spikeTimes - 1)
	})
}

// notification says what one is like. The number is in its id.
type notification struct {
	user, kind int
	number     int64
}

// stride spreads neighbours over the shards' users. It is prime and no factor of
// a number of users.
const stride = 79_999_987

func (p *people) usualAt(at int) notification {
	return notification{user: at * stride % p.usual, kind: at / p.usual % len(types), number: int64(at)}
}

// hotNumbers are those of the hot users' notifications.
const hotNumbers = 1 << 40

func (p *people) hotAt(at int) notification {
	n := notification{user: p.usual + at%hotUsers, kind: at / hotUsers % len(types), number: hotNumbers + int64(at)}
	if kind, _ := p.hot(n.user); kind == stoppedByType {
		n.kind = 0
	}
	return n
}

// The ids are UUIDv7, of one moment.
const (
	idStart = "0199f3c2-8a00-7b11-8c22-"
	idSize  = len(idStart) + 12
)

func (l *load) make(p *people, at func(i int) notification) {
	l.text = l.text[:0]
	now := time.Now()
	message := push.Message{App: app, Priority: push.Medium, PushType: "alert", Title: "Your order is on its way", Body: "It arrives today."}
	for i := range l.Items {
		n := at(i)
		l.users[i] = int32(n.user)
		l.text = strconv.AppendInt(append(l.text, idStart...), 1<<44|n.number, 16) // always twelve digits
		message.UserID, message.Type = p.ids[n.user], types[n.kind]
		l.Items[i] = pipeline.Item{Message: message, Timestamp: push.At(now), FirstSeen: push.At(now), Expires: push.At(now.Add(time.Hour))}
	}
	ids := string(l.text)
	for i := range l.Items {
		l.Items[i].ID = ids[i*idSize : (i+1)*idSize]
	}
}
