package push

import (
	"crypto/sha256"
	"encoding/base64"
)

// WebhookID is the header webhook-id of what a sender is told: the same of the same event,
// however often and by whomever it is posted.
func WebhookID(sender string, event []byte) string {
	h := sha256.New()
	h.Write([]byte(sender + "\n"))
	h.Write(event)
	return "end_" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}
