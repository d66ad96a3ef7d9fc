package apns_test

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"
)

// wire is a request as a server sees it: pseudo headers, headers, and the body
// as one entry per JSON value, named payload.<path>.
type wire map[string]string

// transportsOwn are headers that say nothing about the notification.
var transportsOwn = []string{"user-agent", "accept-encoding", "content-length"}

// absent stands for what one of two requests does not have.
const absent = "(absent)"

// pair is an entry that differs: ours, theirs.
type pair [2]string

// differences are the entries in which two requests differ.
type differences map[string]pair

func compare(ours, theirs wire) differences {
	d := differences{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(ours)), slices.Collect(maps.Keys(theirs))) {
		p := pair{absent, absent}
		if v, ok := ours[name]; ok {
			p[0] = v
		}
		if v, ok := theirs[name]; ok {
			p[1] = v
		}
		if p[0] != p[1] {
			d[name] = p
		}
	}
	return d
}

func (d differences) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d)) {
		fmt.Fprintf(&b, "\n  %s: ours %.200s, theirs %.200s", name, d[name][0], d[name][1])
	}
	return b.String()
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// recorder is a server that accepts everything and hands over what came.
type recorder struct {
	*httptest.Server
	came chan wire
}

func newRecorder(t *testing.T, key *ecdsa.PublicKey) *recorder {
	t.Helper()
	r := &recorder{came: make(chan wire, 1)}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.came <- record(t, req, body, key)
	}))
	r.EnableHTTP2 = true
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func record(t *testing.T, r *http.Request, body []byte, key *ecdsa.PublicKey) wire {
	w := wire{":method": r.Method, ":path": r.RequestURI, "protocol": r.Proto}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		if !slices.Contains(transportsOwn, name) {
			w[name] = strings.Join(values, " and ")
		}
	}
	w["authorization"] = kindOf(w["authorization"], key)
	if uuid.MatchString(w["apns-id"]) {
		w["apns-id"] = "a UUID"
	}
	var payload any
	if err := json.Unmarshal(body, &payload); err != nil {
		t.Errorf("body %.80q: %v", body, err)
	}
	flatten(w, "payload", payload)
	return w
}

// flatten adds an entry for each value that is no object, and for empty ones.
func flatten(w wire, path string, v any) {
	if object, is := v.(map[string]any); is && len(object) > 0 {
		for key, value := range object {
			flatten(w, path+"."+key, value)
		}
		return
	}
	text, _ := json.Marshal(v)
	w[path] = string(text)
}

// kindOf describes a verified provider token without what may differ: its age
// within the hour, and the signature.
func kindOf(authorization string, key *ecdsa.PublicKey) string {
	scheme, raw, _ := strings.Cut(authorization, " ")
	var claims jwt.MapClaims
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithoutClaimsValidation())
	token, err := parser.ParseWithClaims(raw, &claims, func(*jwt.Token) (any, error) { return key, nil })
	if err != nil {
		return "invalid: " + err.Error()
	}
	iat, _ := claims["iat"].(float64)
	age := time.Since(time.Unix(int64(iat), 0))
	inTime := age > -time.Second && age < time.Hour
	delete(claims, "iat")
	return fmt.Sprint(scheme, " ", token.Header, " ", claims, " in time: ", inTime)
}
