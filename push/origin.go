package push

import (
	"net/url"
	"strings"
	"time"
)

// Origin is what messages have in common that can be stopped without their app: a
// campaign of a sender, or a sender.
type Origin struct {
	Kind OriginKind
	Name string
	// Sender is whose campaign it is: one that names another's is not stopped in its place.
	Sender string
}

// OriginKind says what an Origin is.
type OriginKind string

// The kinds of origins.
const (
	OfCampaign OriginKind = "campaign"
	OfSender   OriginKind = "sender"
)

// String is the origin's name in logs and events: "campaign@orders/autumn", the sender
// escaped as in the path of a URL, or "campaign/autumn" without one.
func (o Origin) String() string {
	kind := string(o.Kind)
	if o.Sender != "" {
		kind += "@" + url.PathEscape(o.Sender)
	}
	return kind + "/" + o.Name
}

// ParseOrigin is the inverse of Origin's String.
func ParseOrigin(s string) (Origin, bool) {
	kind, name, _ := strings.Cut(s, "/")
	kind, escaped, owned := strings.Cut(kind, "@")
	sender, err := url.PathUnescape(escaped)
	o := Origin{OriginKind(kind), name, sender}
	switch {
	case err != nil, name == "", owned && (sender == "" || o.Kind != OfCampaign):
		return Origin{}, false
	}
	return o, o.Kind == OfCampaign || o.Kind == OfSender
}

// Clone is a copy that shares no memory with the message that it is of.
func (o Origin) Clone() Origin {
	return Origin{o.Kind, strings.Clone(o.Name), strings.Clone(o.Sender)}
}

// Origins are a message's campaign and sender, as far as it names them. One that is
// critical has none: it is never stopped for what it has in common with others. Their
// names share the message's memory.
func (m *Message) Origins() (os [2]Origin, n int) {
	if m.Priority == Critical {
		return os, 0
	}
	if m.Campaign != "" {
		os[n] = Origin{OfCampaign, m.Campaign, m.SenderID}
		n++
	}
	if m.SenderID != "" {
		os[n] = Origin{Kind: OfSender, Name: m.SenderID}
		n++
	}
	return os, n
}

// Reason is why a message of a quarantined origin waits.
func (k OriginKind) Reason() Reason {
	if k == OfCampaign {
		return CampaignQuarantined
	}
	return SenderQuarantined
}

// Culprit says that an origin is to be stopped on a route: what it sends waits.
type Culprit struct {
	Origin Origin
	For    time.Duration // 0 = for as long as is configured
}
