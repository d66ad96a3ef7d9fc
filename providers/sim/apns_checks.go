package sim

import (
	"strconv"
	"strings"
)

// pushType is a row of Apple's table of push types.
type pushType struct {
	suffixes []string // of the topic; any of them
	limit    int      // of the payload, in bytes
}

var pushTypes = map[string]pushType{
	"alert":        {[]string{""}, payloadLimit},
	"background":   {[]string{""}, payloadLimit},
	"location":     {[]string{".location-query"}, payloadLimit},
	"voip":         {[]string{".voip"}, payloadLimitVoIP},
	"complication": {[]string{".complication", "h.complication"}, payloadLimit}, // Apple has printed both
	"fileprovider": {[]string{".pushkit.fileprovider"}, payloadLimit},
	"mdm":          {[]string{""}, payloadLimit}, // the topic is the UID of a certificate
	"liveactivity": {[]string{".push-type.liveactivity"}, payloadLimit},
	"pushtotalk":   {[]string{".voip-ptt"}, payloadLimit},
	"widgets":      {[]string{".push-type.widgets"}, payloadLimit},
	"controls":     {[]string{".push-type.controls"}, payloadLimit},
}

// topicSuffixes are all suffixes of the table but Apple's misprint.
var topicSuffixes = [...]string{
	".push-type.liveactivity", ".push-type.widgets", ".push-type.controls", ".pushkit.fileprovider",
	".location-query", ".complication", ".voip-ptt", ".voip",
}

// baseTopic is the bundle id in a topic.
func baseTopic(topic string) string {
	for _, s := range topicSuffixes {
		if base, ok := strings.CutSuffix(topic, s); ok && base != "" {
			return base
		}
	}
	return topic
}

func (a *apple) checkPath(n *notification) Reply {
	if !strings.HasPrefix(n.req.Path, "/3/device/") || strings.ContainsAny(n.token, "/?") {
		return APNSBadPath
	}
	return NoReply
}

func (a *apple) checkMethod(n *notification) Reply {
	if n.req.Method != "POST" {
		return APNSMethodNotAllowed
	}
	return NoReply
}

func (a *apple) checkRepeats(n *notification) Reply {
	if n.repeated {
		return APNSDuplicateHeaders
	}
	return NoReply
}

func (a *apple) checkID(n *notification) Reply {
	if n.id != "" && !isUUID(n.id) {
		return APNSBadMessageID
	}
	return NoReply
}

func (a *apple) checkTopic(n *notification) Reply {
	if n.topic == "" {
		return APNSMissingTopic
	}
	if len(n.topic) > topicLimit {
		return APNSBadTopic
	}
	for i := range len(n.topic) {
		if c := n.topic[i]; !isAlphanumeric(c) && c != '.' && c != '-' && c != '_' {
			return APNSBadTopic
		}
	}
	return NoReply
}

func (a *apple) checkExpiration(n *notification) Reply {
	if n.expiration == "" {
		return NoReply
	}
	if _, err := strconv.ParseUint(n.expiration, 10, 63); err != nil || n.expiration[0] == '+' {
		return APNSBadExpirationDate
	}
	return NoReply
}

func (a *apple) checkPriority(n *notification) Reply {
	switch n.priority {
	case "5":
	case "", "10", "1":
		// Absent is 10, and a background push with 10 is an error.
		if n.pushType == "background" {
			return APNSBadPriority
		}
	default:
		return APNSBadPriority
	}
	return NoReply
}

func (a *apple) checkCollapseID(n *notification) Reply {
	if len(n.collapse) > collapseLimit || n.hasCollapse && n.collapse == "" {
		return APNSBadCollapseID
	}
	return NoReply
}

// checkPushType knows the type, and that the topic has its suffix. Without the
// header (older systems) any suffix goes.
func (a *apple) checkPushType(n *notification) Reply {
	if n.pushType == "" {
		return NoReply
	}
	t, ok := pushTypes[n.pushType]
	if !ok {
		return APNSInvalidPushType
	}
	for _, s := range t.suffixes {
		if s != "" && strings.HasSuffix(n.topic, s) || s == "" && baseTopic(n.topic) == n.topic {
			return NoReply
		}
	}
	return APNSBadTopic
}

func (a *apple) checkAuthorization(n *notification) Reply {
	key, reply := a.auth.admit(n.req.Conn, n.authorization, n.req.now)
	n.key = key
	return reply
}

func (a *apple) checkTopicAllowed(n *notification) Reply {
	n.base = baseTopic(n.topic)
	if misprint, ok := strings.CutSuffix(n.topic, "h.complication"); ok && a.topics[misprint] {
		n.base = misprint
	}
	switch {
	case n.key.topics[n.base]:
		return NoReply
	case a.topics[n.base]:
		return APNSTopicDisallowed
	}
	return APNSBadTopic
}

func (a *apple) checkToken(n *notification) Reply {
	if n.token == "" {
		return APNSMissingDeviceToken
	}
	if len(n.token)%2 != 0 || len(n.token) > tokenLimit {
		return APNSBadDeviceToken
	}
	for i := range len(n.token) {
		if !isHex(n.token[i]) {
			return APNSBadDeviceToken
		}
	}
	return NoReply
}

func (a *apple) checkPayload(n *notification) Reply {
	limit := payloadLimit
	if t, ok := pushTypes[n.pushType]; ok {
		limit = t.limit
	} else if strings.HasSuffix(n.topic, ".voip") {
		limit = payloadLimitVoIP
	}
	switch {
	case len(n.req.Body) == 0:
		return APNSPayloadEmpty
	case len(n.req.Body) > limit:
		return APNSPayloadTooLarge
	}
	n.scan()
	switch {
	case n.payload.malformed && a.malformed != APNSAccepted:
		return a.malformed
	case n.payload.malformed:
		return NoReply
	case n.payload.keys == 0:
		return APNSPayloadEmpty
	case n.pushType == "background" && (n.payload.visible || !n.payload.contentAvailable):
		return APNSInvalidPushType
	}
	return NoReply
}

// payload is what the policy wants to know of an APNs payload.
type payload struct {
	malformed        bool
	keys             int    // at the top level
	id               []byte // pf_id, a part of the body
	visible          bool   // aps has an alert, badge or sound
	contentAvailable bool   // aps has content-available 1
}

func scanPayload(body []byte) payload {
	var p payload
	s := scanner{b: body}
	err := s.object(func(key []byte) error {
		p.keys++
		switch {
		case string(key) == "pf_id" && s.peek() == kindString:
			id, err := s.text()
			p.id = unquote(id)
			return err
		case string(key) == "aps" && s.peek() == kindObject:
			return p.scanAPS(&s)
		}
		_, err := s.value()
		return err
	})
	p.malformed = err != nil || !s.end()
	return p
}

func (p *payload) scanAPS(s *scanner) error {
	return s.object(func(key []byte) error {
		v, err := s.value()
		switch string(key) {
		case "alert", "badge", "sound":
			p.visible = true
		case "content-available":
			p.contentAvailable = string(v) == "1"
		}
		return err
	})
}

// isUUID knows the canonical form: 8-4-4-4-12 lower-case hexadecimal digits.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case !isHex(c) || c >= 'A' && c <= 'F':
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
