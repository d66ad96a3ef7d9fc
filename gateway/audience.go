package gateway

import (
	"strings"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// audience is whom a message for many receivers is for, and what that says of the message.
type audience struct {
	to           fanout.To
	app, service string        // the body may leave out what is here, and says nothing else
	priority     push.Priority // unless the body says another
	ceiling      push.Priority
	pulled       bool     // some may fetch it
	confidential bool     // nothing of its text is pushed
	over         *Problem // why it gets nothing new any more; nil = it does
	words        struct{ receiver, app, service string }
}

// subscribersOf is the audience of a message to a topic.
func subscribersOf(t *subscriptions.Topic) *audience {
	a := &audience{app: t.App, service: t.Service, priority: t.Priority, ceiling: t.Priority, pulled: t.Modes.Has(subscriptions.Pull) || t.Security == subscriptions.Confidential,
		confidential: t.Security == subscriptions.Confidential,
		to:           fanout.To{Kind: fanout.OfTopic, Name: t.Name, Layout: t.Layout.Number, Buckets: t.Layout.Buckets, Parts: partsOf(t.Size)}}
	a.words.receiver = "a message to a topic is for its subscribers, and names no receiver"
	a.words.app, a.words.service = "another app than the topic's", "another service type than the topic's"
	return a
}

// The members of a body for many receivers that their audience says, or nobody.
const (
	memberUser     = "user_id"
	memberDevice   = "device"
	memberApp      = "app"
	memberPriority = "priority"
	memberExpires  = "expires_at"
	memberCampaign = "campaign"
)

// complete completes a message, so that it can be checked as one for a user: the audience
// stands for the receiver.
func (a *audience) complete(body []byte) ([]byte, *Problem) {
	var m push.Message
	if d := decode.Message(body, &m); d != nil && !(d.Reason == push.MissingField && (d.Field == memberID || d.Field == memberApp || d.Field == memberUser)) {
		return nil, refused(d).of(strings.Clone(m.ID))
	}
	receiver := a.to.String() // of a segment it may be longer than a user's id
	out := appendQuoted(append(make([]byte, 0, len(body)+512), `{"user_id":`...), receiver[:min(len(receiver), subscriptions.MaxUser)])
	out = appendQuoted(append(out, `,"app":`...), a.app)
	if a.service != "" {
		out = appendQuoted(append(out, `,"service_type":`...), a.service)
	}
	var problem *Problem
	says := func(name string, value []byte, want, otherwise string) {
		if said := string(value); problem == nil && said != "null" && said != `""` && (value[0] != '"' || want == "" || string(unescaped(value)) != want) {
			problem = newProblem(codeInvalidField, otherwise).at("/" + name)
		}
	}
	members(body, func(name, whole, value []byte) {
		switch string(name) {
		case memberUser, memberDevice:
			says(string(name), value, "", a.words.receiver)
			return
		case memberApp:
			says(memberApp, value, a.app, a.words.app)
			return
		case memberService:
			if a.service != "" {
				says(memberService, value, a.service, a.words.service)
				return
			}
		}
		out = append(append(out, ','), whole...)
	})
	return append(out, '}'), problem
}
