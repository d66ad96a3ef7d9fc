package inbox

import (
	"encoding/json"

	"github.com/pushfleet/pushfleet/push"
)

// content is what is shown of a message: what people read, and what the app needs to do
// something with it. Raw overrides for providers, sounds and badges are for devices.
type content struct {
	Title    string          `json:"title,omitempty"`
	Body     string          `json:"body,omitempty"`
	Image    string          `json:"image,omitempty"`
	Video    string          `json:"video,omitempty"`
	Category string          `json:"category,omitempty"`
	Thread   string          `json:"thread_id,omitempty"`
	Locale   string          `json:"locale,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
}

// ContentOf is the Content of a message's entry; ok is false for one that has nothing to
// be read, such as a background push. The message must have been decoded.
func ContentOf(m *push.Message) (text []byte, ok bool) {
	if m.Title == "" && m.Body == "" && m.Image == "" && m.Video == "" {
		return nil, false
	}
	text, err := json.Marshal(content{m.Title, m.Body, m.Image, m.Video, m.Category, m.ThreadID, m.Locale, m.Data})
	return text, err == nil
}
