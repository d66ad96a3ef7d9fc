package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
)

// A cursor is base64url of: version, Unix milliseconds as a varint, the id with its length
// before it, and 16 bytes of HMAC-SHA-256 over all that and the inbox: only what was shown
// to its user can be marked, or read on from.
const (
	cursorVersion = 1
	forCursors    = "pushfleet inbox cursor"
	maxCursor     = 200 // characters: an id has 64 bytes at most
)

func (s *Signer) signCursor(k inbox.Key, p inbox.Position) string {
	b := binary.AppendUvarint([]byte{cursorVersion}, uint64(p.At.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(s.signed(appendText(b, p.ID), forCursors, k.App, k.User))
}

// openCursor reads a cursor; false = it is none of this inbox.
func (s *Signer) openCursor(k inbox.Key, text string) (p inbox.Position, ok bool) {
	if len(text) > maxCursor || strings.ContainsAny(text, "\r\n") { // over which the decoder passes
		return p, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1 || b[0] != cursorVersion {
		return p, false
	}
	b, ok = s.verified(b, forCursors, k.App, k.User)
	if !ok || len(b) < 1 {
		return p, false
	}
	r := claimReader{b: b[1:]}
	at := r.number(1 << 50)
	p = inbox.Position{At: time.UnixMilli(int64(at)).UTC(), ID: r.text()}
	return p, !r.bad && len(r.b) == 0
}

// marksRequest is the body of POST /v1/users/{user}/inbox/marks.
type marksRequest struct {
	App    string   `json:"app"`
	Read   []string `json:"read"`
	Unread []string `json:"unread"`
	UpTo   string   `json:"read_up_to"`
}

var marksFields = []string{"app", "read", "unread", "read_up_to"}

// marksBytes is how many bytes a body of marks may have.
const marksBytes = inbox.MaxMarks*(maxCursor+8) + 4<<10

// marksAnswer is the answer.
type marksAnswer struct {
	UserID string `json:"user_id"`
	App    string `json:"app"`
	Marked int    `json:"marked"` // cursors of the request, all of which are durable
}

// markInbox answers POST /v1/users/{user}/inbox/marks.
func (g *Gateway) markInbox(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	var q marksRequest
	if problem := g.readObject(r, marksBytes, &q, marksFields); problem != nil {
		return problem
	}
	k, problem := g.inboxKey(v, q.App)
	if problem != nil {
		return problem
	}
	m, problem := g.marksOf(k, &q)
	if problem != nil {
		return problem
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	if err := g.o.Inbox.Store.Mark(ctx, k, m); err != nil {
		return g.inboxAway(err)
	}
	marked := len(m.Read) + len(m.Unread)
	if q.UpTo != "" {
		marked++
	}
	answer(w, http.StatusOK, "application/json", marksAnswer{UserID: k.User, App: k.App, Marked: marked})
	return nil
}

// marksOf reads the cursors of a request.
func (g *Gateway) marksOf(k inbox.Key, q *marksRequest) (*inbox.Marks, *Problem) {
	if len(q.Read)+len(q.Unread) > inbox.MaxMarks {
		return nil, newProblem(codeInvalidField, fmt.Sprintf("want %d cursors at most", inbox.MaxMarks)).at("/read")
	}
	if len(q.Read)+len(q.Unread) == 0 && q.UpTo == "" {
		return nil, newProblem(codeInvalidField, "want read, unread or read_up_to").at("")
	}
	m := &inbox.Marks{At: time.Now().UTC()}
	const fault = "want cursors of this inbox's items"
	for _, list := range []struct {
		name string
		from []string
		to   *[]inbox.Position
	}{{"read", q.Read, &m.Read}, {"unread", q.Unread, &m.Unread}} {
		for i, text := range list.from {
			p, ok := g.o.Signer.openCursor(k, text)
			if !ok {
				return nil, newProblem(codeInvalidField, fault).at(fmt.Sprintf("/%s/%d", list.name, i))
			}
			*list.to = append(*list.to, p)
		}
	}
	if q.UpTo != "" {
		var ok bool
		if m.UpTo, ok = g.o.Signer.openCursor(k, q.UpTo); !ok {
			return nil, newProblem(codeInvalidField, fault).at("/read_up_to")
		}
	}
	return m, nil
}
