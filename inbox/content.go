package inbox

import (
	"bytes"
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

// NoticeData is the data of a notification of a confidential message: the text is beside the
// inbox of its user, and the app can fetch it there. The member is reserved (docs/messages.md).
const NoticeData = `{` + noticeMember + `}`

// NoticeMember is the name of the member.
const NoticeMember = "pf_confidential"

const noticeMember = `"` + NoticeMember + `":"1"`

// IsNotice reports whether a message is such a notification, which is no entry of its own: it
// has nothing to be read but a title, and no data but that and a click token.
func IsNotice(m *push.Message) bool {
	if m.Body != "" || m.Image != "" || m.Video != "" {
		return false
	}
	rest, ok := bytes.CutSuffix(m.Data, []byte(noticeMember+`}`))
	const token = `{"pf_click":"`
	return ok && (string(rest) == `{` || bytes.HasPrefix(rest, []byte(token)) && bytes.IndexByte(rest[len(token):], '"') == len(rest)-len(token)-len(`",`))
}
