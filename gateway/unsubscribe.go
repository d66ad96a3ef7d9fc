package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"hash/maphash"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// link is what a link says by which a user wants no more of something.
type link struct {
	app, user string
	kind      byte   // linkType
	name      string // of the message type
}

// A link's token is base64url of: version, kind, app, user and name, each with its length
// before it, and 16 bytes of HMAC-SHA-256 over all that. It has no end of its own: mails
// are kept for years.
const (
	linkVersion = 1
	linkType    = 1 // no more messages of a type
	forLinks    = "pushfleet unsubscribe"
	maxLink     = 600 // bytes of the longest there can be, and some more
)

func (s *Signer) signLink(l *link) string {
	b := []byte{linkVersion, l.kind}
	for _, text := range []string{l.app, l.user, l.name} {
		b = appendText(b, text)
	}
	return base64.RawURLEncoding.EncodeToString(s.signed(b, forLinks))
}

// openLink reads a token; false = it is none.
func (s *Signer) openLink(token string) (*link, bool) {
	if len(token) > maxLink || strings.ContainsAny(token, "\r\n") { // over which the decoder passes
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return nil, false
	}
	b, valid := s.verified(b, forLinks)
	if !valid || len(b) < 2 || b[0] != linkVersion || b[1] != linkType {
		return nil, false
	}
	l, r := &link{kind: b[1]}, claimReader{b: b[2:]}
	for _, to := range []*string{&l.app, &l.user, &l.name} {
		*to = r.text()
	}
	return l, !r.bad && len(r.b) == 0
}

// linkRequest is the body of POST /v1/users/{user}/unsubscribe-links.
type linkRequest struct {
	App  string `json:"app"`
	Type string `json:"type"`
}

var linkFields = []string{"app", "type"}

// linkAnswer is the answer.
type linkAnswer struct {
	Path string `json:"path"` // at this gateway, or wherever it is reached from outside
}

// makeLink answers POST /v1/users/{user}/unsubscribe-links.
func (g *Gateway) makeLink(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	var q linkRequest
	if problem := g.readObject(r, 4<<10, &q, linkFields); problem != nil {
		return problem
	}
	if problem := g.ownApp(v, q.App); problem != nil {
		return problem
	}
	if _, err := without(push.Preferences{}, q.Type); err != nil {
		return newProblem(codeInvalidField, "want a message type of 1 to 64 bytes").at("/type")
	}
	answer(w, http.StatusCreated, "application/json", linkAnswer{"/u/" + g.o.Signer.signLink(&link{q.App, v.user, linkType, q.Type})})
	return nil
}

// without are preferences with a message type opted out of. The error wraps
// record.ErrInvalid.
func without(p push.Preferences, name string) (push.Preferences, error) {
	if !slices.Contains(p.Types, name) {
		p.Types = append(slices.Clone(p.Types), name)
	}
	return p, record.CheckPreferences(&p)
}

// maxOneClick is the largest body of a click, in bytes, a multipart one's parts included.
const maxOneClick = 4 << 10

// unsubscribe answers POST /u/{token}, as RFC 8058 has it: whoever has the link needs no
// key, and it changes nothing by a GET, which scanners of mails make.
func (g *Gateway) unsubscribe(w http.ResponseWriter, r *http.Request) *Problem {
	if problem := g.oneClick(r); problem != nil {
		return problem
	}
	l, ok := g.o.Signer.openLink(r.PathValue("token"))
	if !ok {
		return newProblem(codeNoLink, "no such link, or its secret is gone")
	}
	if problem := g.optOut(r.Context(), l.user, l.name); problem != nil {
		return problem
	}
	answer(w, http.StatusOK, "application/json", struct {
		Unsubscribed string `json:"unsubscribed"`
	}{l.name})
	return nil
}

// optOut opts a user out of a message type, and leaves all else. Done again, it changes
// nothing.
func (g *Gateway) optOut(ctx context.Context, user, name string) *Problem {
	if g.o.Users == nil || g.o.Users.registry == nil {
		return newProblem(codeNotConfigured, "this gateway cannot read users, and so takes no wishes from them")
	}
	// Two clicks of a user come after each other, or one would undo the other.
	turn := g.turns[maphash.String(g.seed, user)%uint64(len(g.turns))]
	waiting, cancel := context.WithTimeout(ctx, g.o.Times.Confirm)
	defer cancel()
	if enter(waiting, turn) != nil {
		return newProblem(codeUnconfirmed, "its turn did not come in time").after(2)
	}
	ours := true // the turn; else the append gives it back, which may end after the request
	defer func() {
		if ours {
			leave(turn)
		}
	}()
	p, problem := g.latest(ctx, user)
	if problem != nil || slices.Contains(p.Types, name) {
		return problem
	}
	wanted, err := without(p, name)
	if err != nil {
		return invalid(err)
	}
	problem = g.change(ctx, "unsubscribed", func(ctx context.Context, c *users.Client) error {
		defer leave(turn)
		return c.SetPreferences(ctx, user, wanted)
	})
	ours = problem != nil && problem.Code == codeBufferFull // it was not begun
	return problem
}

// latest are a user's preferences with every change that was confirmed before.
func (g *Gateway) latest(ctx context.Context, user string) (push.Preferences, *Problem) {
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Status)
	defer cancel()
	p, err := g.o.Users.registry.Preferences(ctx, user)
	if err != nil {
		g.o.Log.Warn("preferences cannot be read", "error", err)
		return p, newProblem(codeRegistryAway, "what the user wants so far cannot be read, so nothing is changed").after(5)
	}
	return p, nil
}

// oneClick reads the body of a click: a form of either kind, with List-Unsubscribe.
func (g *Gateway) oneClick(r *http.Request) *Problem {
	want := newProblem(codeBadRequest, "want the form List-Unsubscribe=One-Click (RFC 8058)")
	values := r.Header.Values("Content-Type")
	if len(values) != 1 {
		return newProblem(codeMediaType, "want a form")
	}
	kind, parameters, err := mime.ParseMediaType(values[0])
	if err != nil || kind != "application/x-www-form-urlencoded" && kind != "multipart/form-data" {
		return newProblem(codeMediaType, "want a form")
	}
	body, problem := g.readWhole(r, maxOneClick, ofMany)
	if problem != nil {
		return problem
	}
	defer g.bodies.give(body)
	var form url.Values
	if kind == "multipart/form-data" {
		form, err = parts(body.text, parameters["boundary"])
	} else {
		form, err = url.ParseQuery(string(body.text))
	}
	if err != nil || !slices.Equal(form["List-Unsubscribe"], []string{"One-Click"}) {
		return want
	}
	return nil
}

// parts are the values of a multipart form. All of it is in memory: the body is small.
func parts(body []byte, boundary string) (url.Values, error) {
	if boundary == "" {
		return nil, errors.New("no boundary")
	}
	form, err := multipart.NewReader(bytes.NewReader(body), boundary).ReadForm(maxOneClick)
	if err != nil {
		return nil, err
	}
	defer func() { _ = form.RemoveAll() }()
	return form.Value, nil
}
