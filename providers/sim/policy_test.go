package sim

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
)

// stand is a policy on its own, with a clock that the test moves.
type stand struct {
	t      testing.TB
	policy *policy
	shop   *Credentials
	other  *Credentials // another team's
	clock  time.Time
	bearer string
}

// twoApps are made once: RSA keys take their time.
var twoApps = sync.OnceValue(func() (c [2]*Credentials) {
	for i, name := range []string{"shop", "news"} {
		var err error
		if c[i], err = NewCredentials(name, "com.example."+name); err != nil {
			panic(err)
		}
	}
	return c
})

// newStand makes a policy that knows two apps, and an FCM access token.
func newStand(t testing.TB, change func(*Options)) *stand {
	t.Helper()
	s := &stand{t: t, shop: twoApps()[0], other: twoApps()[1], clock: time.Unix(1_800_000_000, 0)}
	o := Options{Apps: []App{s.shop.App(), s.other.App()}, Now: func() time.Time { return s.clock }}
	if change != nil {
		change(&o)
	}
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s.policy = newPolicy(&o)
	s.bearer = "Bearer " + s.accessToken(s.shop)
	return s
}

func sign(t testing.TB, header, claims map[string]any, key crypto.PrivateKey) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(header) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	var sig []byte
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		sig = make([]byte, 64)
		r.FillBytes(sig[:32])
		s.FillBytes(sig[32:])
	case *rsa.PrivateKey:
		var err error
		if sig, err = rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:]); err != nil {
			t.Fatal(err)
		}
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// providerToken is an authorization value for APNs, minted at a time.
func (s *stand) providerToken(c *Credentials, at time.Time) string {
	return "bearer " + sign(s.t, map[string]any{"alg": "ES256", "kid": c.KeyID}, map[string]any{"iss": c.TeamID, "iat": at.Unix()}, c.key)
}

func (s *stand) assertion(c *Credentials, change func(claims map[string]any)) string {
	claims := map[string]any{
		"iss": c.Account, "scope": messagingScope, "aud": googleAudience,
		"iat": s.clock.Unix(), "exp": s.clock.Add(time.Hour).Unix(),
	}
	if change != nil {
		change(claims)
	}
	return sign(s.t, map[string]any{"alg": "RS256"}, claims, c.account)
}

func (s *stand) accessToken(c *Credentials) string {
	s.t.Helper()
	ans := s.token("POST", "grant_type="+grantType+"&assertion="+s.assertion(c, nil))
	var granted struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal(ans.Body, &granted); err != nil || granted.Token == "" {
		s.t.Fatalf("no access token: %s", ans.Body)
	}
	return granted.Token
}

func (s *stand) token(method, form string) *Answer {
	return s.do(&Request{Method: method, Path: "/token", Body: []byte(form), Conn: NewConn()})
}

func (s *stand) do(req *Request) *Answer {
	var ans Answer
	s.policy.Answer(req, &ans)
	return &ans
}

func (a *Answer) value(name string) string {
	for _, f := range a.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

const goodToken = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

// push is a good APNs request for a test to spoil.
func (s *stand) push() *Request {
	return &Request{
		Method: "POST", Path: "/3/device/" + goodToken, Conn: NewConn(),
		Fields: []Field{
			{Name: "authorization", Value: s.providerToken(s.shop, s.clock)},
			{Name: "apns-id", Value: "123e4567-e89b-12d3-a456-426655440000"},
			{Name: "apns-topic", Value: "com.example.shop"},
			{Name: "apns-push-type", Value: "alert"},
			{Name: "apns-priority", Value: "10"},
			{Name: "apns-expiration", Value: "1800003600"},
			{Name: "apns-collapse-id", Value: "order-17"},
		},
		Body: []byte(`{"aps":{"alert":{"title":"t","body":"b"},"badge":1},"pf_id":"n1"}`),
	}
}

// set replaces header fields, given as name, value, name, value; an empty
// value takes the field out.
func set(pairs ...string) func(*stand, *Request) {
	return func(_ *stand, r *Request) {
		for i := 0; i < len(pairs); i += 2 {
			kept := r.Fields[:0]
			for _, f := range r.Fields {
				if f.Name != pairs[i] {
					kept = append(kept, f)
				}
			}
			r.Fields = kept
			if pairs[i+1] != "" {
				r.Fields = append(r.Fields, Field{Name: pairs[i], Value: pairs[i+1]})
			}
		}
	}
}

func path(p string) func(*stand, *Request)   { return func(_ *stand, r *Request) { r.Path = p } }
func method(m string) func(*stand, *Request) { return func(_ *stand, r *Request) { r.Method = m } }
func content(b string) func(*stand, *Request) {
	return func(_ *stand, r *Request) { r.Body = []byte(b) }
}

func all(fs ...func(*stand, *Request)) func(*stand, *Request) {
	return func(s *stand, r *Request) {
		for _, f := range fs {
			f(s, r)
		}
	}
}

func padded(n int) string {
	const head, tail = `{"aps":{"alert":"`, `"},"pf_id":"n1"}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

// A command may be for one app: what is addressed to another one passes it, and
// it only ends with its time.
func TestCommandsForOneApp(t *testing.T) {
	s := newStand(t, nil)
	server := &Server{policy: s.policy}
	for provider, c := range map[string]Command{
		"apns": {Reply: "TopicDisallowed", To: s.other.Topic}, "fcm": {Reply: "PERMISSION_DENIED", To: s.other.Project},
	} {
		c.Do, c.Provider, c.For = "answer", provider, Interval(time.Minute)
		if err := server.Command(c); err != nil {
			t.Fatal(err)
		}
	}
	ofOther := func(_ *stand, r *Request) {
		for i := range r.Fields {
			switch f := &r.Fields[i]; f.Name {
			case "apns-topic":
				f.Value = s.other.Topic
			case "authorization":
				if f.Value = s.providerToken(s.other, s.clock); r.Fields[0].Name == f.Name && len(r.Fields) == 2 { // FCM's
					f.Value = "Bearer " + s.accessToken(s.other)
				}
			}
		}
		r.Path = strings.Replace(r.Path, s.shop.Project, s.other.Project, 1)
	}
	same(t, answered(s, 2), APNSAccepted, APNSAccepted)
	same(t, answered(s, 2, ofOther), APNSTopicDisallowed, APNSTopicDisallowed)
	same(t, sent(s, 2), FCMAccepted, FCMAccepted)
	same(t, sent(s, 2, ofOther), FCMPermissionDenied, FCMPermissionDenied)
	s.clock = s.clock.Add(time.Minute)
	same(t, answered(s, 1, ofOther), APNSAccepted)
	same(t, sent(s, 1, ofOther), FCMAccepted)
	for _, c := range []Command{{Do: "drain", Provider: "apns"}, {Do: "refuse", For: Interval(time.Second)}, {Do: "answer", Provider: "oauth", Reply: "granted"}} {
		if c.To = s.other.Topic; server.Command(c) == nil {
			t.Errorf("%q can be for one app", c.Do)
		}
	}
}
