package check

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// FCM is what a push to an app of Firebase's needs.
type FCM struct {
	URL            string
	Project        string
	ServiceAccount []byte      // its JSON file
	TLS            *tls.Config // roots; nil = the system's
}

const scope = "https://www.googleapis.com/auth/firebase.messaging"

// Run tries all steps. Its last is one with the outcome; ctx bounds it.
func (f FCM) Run(ctx context.Context) (s Steps) {
	c := s.reach(ctx, f.URL, f.TLS)
	if c == nil {
		return s
	}
	defer c.close()
	conf, err := google.JWTConfigFromJSON(f.ServiceAccount, scope)
	if err != nil { // its text may hold a part of the file
		s.fails("credentials", "service_account_file is no JSON file of a service account", "download the key of the service account again")
		return s
	}
	token := f.token(ctx, &s, conf.TokenURL, conf.TokenSource)
	if token == nil {
		return s
	}
	// A message to a topic needs no device; validate_only has it looked at and not sent.
	answer, err := c.post(ctx, f.URL+"/v1/projects/"+url.PathEscape(f.Project)+"/messages:send",
		`{"validate_only":true,"message":{"topic":"pushfleet-check","data":{"check":"1"}}}`, http.Header{
			"Authorization": {"Bearer " + token.AccessToken},
			"Content-Type":  {"application/json"},
		})
	if err != nil {
		s.fails("HTTP/2", short(err), "the connection ended without an answer: a proxy between this machine and Google?")
		return s
	}
	defer answer.Body.Close()
	f.read(&s, answer)
	return s
}

// token gets an access token of the account's. The way to its endpoint is another one
// than that to FCM.
func (f FCM) token(ctx context.Context, s *Steps, endpoint string, source func(context.Context) oauth2.TokenSource) *oauth2.Token {
	transport := &http.Transport{TLSClientConfig: f.TLS.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	asks := &within{ctx: ctx, next: transport}
	token, err := source(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: asks})).Token()
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused):
		s.fails("credentials", line(fmt.Sprintf("%d %s %s", refused.Response.StatusCode, refused.ErrorCode, refused.ErrorDescription)), tokenAdvice(refused))
	case err != nil && asks.asked:
		s.fails("access token", short(err), "let this machine out to "+endpoint)
	case err != nil: // nothing was asked; its text may hold a part of the file
		s.fails("credentials", "the private_key of the service account cannot be used", "download the key of the service account again")
	default:
		s.well("credentials", "an access token was issued")
		return token
	}
	return nil
}

func tokenAdvice(e *oauth2.RetrieveError) string {
	switch {
	case e.ErrorCode == "invalid_grant":
		return "the key of the service account was deleted, the account is disabled, or this machine's clock is wrong"
	case e.Response.StatusCode >= 500 || e.Response.StatusCode == http.StatusTooManyRequests:
		return "Google issues no tokens at the moment; the credentials were not judged: try again"
	}
	return "Google does not know this service account or its key: download the key again"
}

// within ends requests with ctx: oauth2 makes them without one.
type within struct {
	ctx   context.Context
	next  http.RoundTripper
	asked bool // whether there was one
}

// RoundTrip implements http.RoundTripper.
func (w *within) RoundTrip(r *http.Request) (*http.Response, error) {
	w.asked = true
	return w.next.RoundTrip(r.WithContext(w.ctx))
}

// read judges Google's answer.
func (f FCM) read(s *Steps, answer *http.Response) {
	var body struct {
		Error struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&body) // no status is one that is not known
	detail := line(fmt.Sprintf("%d %s: %s", answer.StatusCode, body.Error.Status, body.Error.Message))
	switch status := answer.StatusCode; {
	case status == http.StatusOK:
		s.well("project", "messages of "+f.Project+" would be taken")
	case status == http.StatusUnauthorized:
		s.fails("project", detail, "the access token was refused: look at this machine's clock, and at the URL")
	case status == http.StatusForbidden:
		s.fails("project", detail, "the account may not send for "+f.Project+": give it the role Firebase Cloud Messaging API Admin there, and enable that API")
	case status == http.StatusNotFound:
		s.fails("project", detail, "there is no project "+f.Project+": look at fcm.project")
	case status == http.StatusTooManyRequests:
		s.well("project", "its quota is used up at the moment ("+detail+"), so it is known")
	case status >= http.StatusInternalServerError:
		s.fails("answer", detail, "FCM does not answer at the moment; the project was not judged: try again")
	default:
		s.fails("answer", detail, "an answer that says nothing of the project: is the URL Google's?")
	}
}
