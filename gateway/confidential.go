package gateway

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/gateway/seal"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
)

// Confidential is the side of a gateway that takes messages to confidential topics, and shows
// them to their readers. Of their text nothing is pushed, and nothing is stored that can be
// read without the keys. It needs inboxes.
type Confidential struct {
	Keys  *seal.Keys
	Title string // is pushed in place of a message's own words

	told atomic.Int64 // Unix seconds when it was last said that a text cannot be shown
}

// tellEvery is how long nothing more is said of texts that cannot be shown: a page has many, and
// may be asked for again and again. All are counted.
const tellEvery = time.Minute

// cannotShow says which text cannot be shown, and why.
func (c *Confidential) cannotShow(log *slog.Logger, e *inbox.Entry, why error) {
	now, told := time.Now().Unix(), c.told.Load()
	if now-told >= int64(tellEvery/time.Second) && c.told.CompareAndSwap(told, now) {
		log.Warn("texts of confidential messages cannot be shown; this is one of them, and no more is said for a while", "topic", e.Topic, "message", e.ID, "error", why)
	}
}

// noticed are the members of a message to a confidential topic that its notifications have,
// too: what workers go by, and nothing that is made to be read.
var noticed = map[string]bool{
	memberID: true, memberSender: true, memberApp: true, memberUser: true, "type": true, memberCampaign: true, "collapse_key": true,
	memberPriority: true, memberExpires: true, "badge": true, "sound": true,
}

// onDevices lets an app on APNs fetch the text before its notification is shown: Apple starts
// its service extension for it (UNNotificationServiceExtension).
const onDevices = `,"apns":{"payload":{"aps":{"mutable-content":1}}}}`

// seal makes of a checked message to a confidential topic what is pushed, in its record, and
// what is kept for its readers, which it returns.
func (c *Confidential) seal(k *check, a *audience, m *message) ([]byte, *Problem) {
	read := &k.read
	if strings.TrimSpace(read.Title) == "" && strings.TrimSpace(read.Body) == "" {
		return nil, newProblem(codeInvalidField, "a message to a confidential topic is to be read: want a title or a body").at("/body").of(m.id)
	}
	for _, raw := range []struct {
		name string
		said bool
	}{{"apns", len(read.APNSHeaders) > 0 || len(read.APNSPayload) > 0}, {"fcm", hasMember(read.FCM)}, {"push_type", read.PushType != "alert"}} {
		if raw.said {
			return nil, newProblem(codeInvalidField, "a message to a confidential topic is pushed as a title that says nothing of it: leave this out").at("/" + raw.name).of(m.id)
		}
	}
	content, _ := inbox.ContentOf(read)
	sealed := c.Keys.Seal(content, a.app, a.to.Name, m.fanout.String())
	if len(sealed) > fanout.MaxSealed {
		return nil, refused(&push.Defect{Reason: push.TooLarge}).of(m.id)
	}
	m.record.Value = c.notice(m.record.Value)
	return sealed, nil
}

// hasMember reports whether an object, if there is one, has any member.
func hasMember(object []byte) (has bool) {
	members(object, func(_, _, _ []byte) { has = true })
	return has
}

// notice is what is pushed of a message.
func (c *Confidential) notice(value []byte) []byte {
	out := appendQuoted([]byte(`{"title":`), c.Title)
	members(value, func(name, whole, _ []byte) {
		if noticed[string(name)] {
			out = append(append(out, ','), whole...)
		}
	})
	out = append(append(out, `,"data":`...), inbox.NoticeData...)
	return append(out, onDevices...)
}

// sums has what is kept of a checked message tell nothing of its text.
func (c *Confidential) sums(m *message) {
	m.sums = c.Keys.Sums(m.sum, m.fanout.String())
	m.sum = m.sums[0]
}

// reveal is what is shown of an entry: to a client of its user all of it, to others no more
// than was pushed. sealed says that the text is left out.
func (g *Gateway) reveal(e *inbox.Entry, q *inboxQuestion) (content []byte, confidential, sealed bool) {
	if !seal.Sealed(e.Content) {
		return e.Content, false, false
	}
	c := g.o.Confidential
	if c == nil { // it had keys when the message came
		return []byte(`{}`), true, true
	}
	if q.whole {
		content, err := c.Keys.Open(e.Content, q.key.App, e.Topic, e.ID)
		g.o.Metrics.revealed(err)
		if err == nil {
			return content, true, false
		}
		c.cannotShow(g.o.Log, e, err)
	}
	return append(appendQuoted([]byte(`{"title":`), c.Title), '}'), true, true
}
