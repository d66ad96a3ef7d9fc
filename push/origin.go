package push

import (
	"strings"
	"time"
)

// Origin is what messages have in common that can be stopped without their app: a
// campaign, or a sender.
type Origin struct {
	Kind OriginKind
	Name string
}

// OriginKind says what an Origin is.
type OriginKind string

// The kinds of origins.
const (
	OfCampaign OriginKind = "campaign"
	OfSender   OriginKind = "sender"
)

// String is the origin's name in logs and events: "campaign/autumn".
func (o Origin) String() string { return string(o.Kind) + "/" + o.Name }

// ParseOrigin is the inverse of Origin's String.
func ParseOrigin(s string) (Origin, bool) {
	kind, name, _ := strings.Cut(s, "/")
	o := Origin{OriginKind(kind), name}
	return o, o.Name != "" && (o.Kind == OfCampaign || o.Kind == OfSender)
}

// Origins are a message's campaign and sender, as far as it names them. One that is
// critical has none: it is never stopped for what it has in common with others. Their
// names share the message's memory.
func (m *Message) Origins() (os [2]Origin, n int) {
	if m.Priority == Critical {
		return os, 0
	}
	if m.Campaign != "" {
		os[n] = Origin{OfCampaign, m.Campaign}
		n++
	}
	if m.SenderID != "" {
		os[n] = Origin{OfSender, m.SenderID}
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
