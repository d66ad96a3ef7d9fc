package apns

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sideshow/apns2"

	"github.com/pushfleet/pushfleet/providers/payload"
	"github.com/pushfleet/pushfleet/push"
)

// FromNotification reads a notification of the apns2 library as a message for
// its one device: fields where the message has them, and raw overrides for all
// the rest, so that what is sent is what apns2 would send. The caller sets
// App, and ID unless the payload has a string pf_id or the notification an
// ApnsID, which then are the id.
//
// What is not taken over: Topic, which is the route's, and the apns-id, which
// the worker makes for each device and attempt. A background push gets
// priority 5 and content-available whatever the notification says, since Apple
// refuses the rest. Unlike apns2, which leaves these to Apple, it is an error
// when CollapseID has over 64 bytes, Priority is none of 0, 1, 5 and 10, the
// push type is not one of Apple's eleven, or the payload is no JSON object.
// Errors repeat nothing of the notification.
func FromNotification(n *apns2.Notification) (push.Message, error) {
	if n == nil {
		return push.Message{}, errors.New("reading notification: it is nil")
	}
	m := push.Message{
		ID: n.ApnsID, Type: "default", PushType: string(n.PushType), CollapseKey: n.CollapseID,
		Device: push.Target{Platform: push.APNS, Token: n.DeviceToken, Environment: push.Production},
	}
	if m.PushType == "" {
		m.PushType = string(apns2.PushTypeAlert)
	}
	if _, known := pushTypes[m.PushType]; !known {
		return push.Message{}, errors.New("reading notification: unknown push type")
	}
	if len(n.CollapseID) > maxCollapseID {
		return push.Message{}, fmt.Errorf("reading notification: collapse id of %d bytes", len(n.CollapseID))
	}
	if n.Expiration.After(time.Unix(0, 0)) {
		m.ExpiresAt = n.Expiration
	}
	switch n.Priority {
	case 0:
		m.Priority = push.Medium
	case apns2.PriorityHigh:
		m.Priority = push.High
	case apns2.PriorityLow:
		m.Priority = push.Low
	case 1: // apns2 has no name for it
		m.Priority = push.Bulk
		m.APNSHeaders = []push.Header{{Name: headerPriority, Value: "1"}}
	default:
		return push.Message{}, errors.New("reading notification: priority is not 1, 5 or 10")
	}
	if err := readPayload(&m, n); err != nil {
		return push.Message{}, fmt.Errorf("reading notification: %w", err)
	}
	return m, nil
}

func readPayload(m *push.Message, n *apns2.Notification) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return errors.New("payload does not encode as JSON") // the error may quote it
	}
	var rest payload.Object
	if json.Unmarshal(raw, &rest) != nil || rest == nil {
		return errors.New("payload is not a JSON object")
	}
	if _, has := rest["pf_id"]; has {
		if m.ID = rest.Take("pf_id"); m.ID == "" {
			return errors.New("pf_id in the payload is not a string")
		}
	}
	data := map[string]string{}
	for key := range rest {
		if key == "aps" {
			continue
		}
		if s := rest.Take(key); s != "" {
			data[key] = s
		}
	}
	if err := readAPS(m, rest); err != nil {
		return err
	}
	if len(data) > 0 {
		if m.Data, err = json.Marshal(data); err != nil {
			return fmt.Errorf("encoding data: %w", err)
		}
	}
	if len(rest) > 0 {
		if m.APNSPayload, err = json.Marshal(rest); err != nil {
			return fmt.Errorf("encoding payload: %w", err)
		}
	}
	return nil
}

// readAPS moves what the message has fields for out of the payload's aps. For
// background and mdm it moves nothing: we write no content for them.
func readAPS(m *push.Message, content payload.Object) error {
	raw, has := content["aps"]
	if !has {
		return nil
	}
	var aps payload.Object
	if json.Unmarshal(raw, &aps) != nil || aps == nil {
		return errors.New("aps in the payload is not an object")
	}
	if m.PushType == "background" || m.PushType == "mdm" || len(aps) == 0 {
		return nil
	}
	var alert payload.Object
	if json.Unmarshal(aps["alert"], &alert) == nil && len(alert) > 0 { // it may also be a string
		m.Title, m.Body = alert.Take("title"), alert.Take("body")
		if err := aps.Put("alert", alert); err != nil {
			return err
		}
	}
	m.Sound, m.Category, m.ThreadID = aps.Take("sound"), aps.Take("category"), aps.Take("thread-id")
	if badge, err := strconv.Atoi(string(aps["badge"])); err == nil && badge >= 0 {
		m.Badge, m.HasBadge = badge, true
		delete(aps, "badge")
	}
	return content.Put("aps", aps)
}
