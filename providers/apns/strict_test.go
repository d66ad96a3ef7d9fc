package apns

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// strictApple plays Apple as far as provider tokens are concerned, over pipes,
// so that it works in virtual time. iat must be within an hour of its clock, a
// connection that saw an older one accepts nothing afterwards, and one that
// changes its token too often gets an error.
type strictApple struct {
	key *ecdsa.PublicKey
	tls *tls.Config
	// everyChange counts a connection's first change of token too, if it comes
	// within 20 minutes of the first token. Apple's words are "more than once".
	everyChange bool
	silent      bool           // no Date
	serving     sync.WaitGroup // the test's bubble waits for it

	mu      sync.Mutex
	skew    time.Duration // of its clock
	tokens  map[string]bool
	answers map[string]int // by reason; "" = accepted
}

// binding is what it remembers of one connection.
type binding struct {
	token   string
	changed time.Time // zero: never
	wedged  bool
}

func newStrictApple(t *testing.T, key *ecdsa.PrivateKey) (*strictApple, *x509.CertPool) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"apple.example"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &strictApple{
		key: &key.PublicKey, tokens: map[string]bool{}, answers: map[string]int{},
		tls: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12},
	}, roots
}

// dial is the client's Dial.
func (s *strictApple) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	s.serving.Go(func() {
		c := tls.Server(theirs, s.tls)
		defer c.Close()
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err == nil {
			_ = s.serve(http2.NewFramer(c, c)) // ends with the client's connection
		}
	})
	return ours, nil
}

// serve answers each request when it is complete. It works frame by frame
// because x/net's server shares channels between the bubbles of synctest.
func (s *strictApple) serve(f *http2.Framer) error {
	var (
		b       binding
		block   bytes.Buffer
		encoder = hpack.NewEncoder(&block)
		tokens  = map[uint32]string{} // by stream
	)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1000}); err != nil {
		return err
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = f.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			for _, field := range frame.RegularFields() {
				if field.Name == "authorization" {
					tokens[frame.StreamID] = field.Value
				}
			}
		case *http2.DataFrame:
			if err = f.WriteWindowUpdate(0, max(frame.Length, 1)); err != nil || !frame.StreamEnded() {
				break
			}
			header, body := s.answer(tokens[frame.StreamID], &b)
			delete(tokens, frame.StreamID)
			block.Reset()
			for _, field := range header {
				if err := encoder.WriteField(field); err != nil {
					return err
				}
			}
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: body == ""})
			if err == nil && body != "" {
				err = f.WriteData(frame.StreamID, true, []byte(body))
			}
		}
		if err != nil {
			return err
		}
	}
}

func (s *strictApple) answer(authorization string, b *binding) (header []hpack.HeaderField, body string) {
	s.mu.Lock()
	now, silent := time.Now().Add(s.skew), s.silent
	s.mu.Unlock()
	status, reason := s.judge(authorization, b, now)
	s.mu.Lock()
	s.answers[reason]++
	s.tokens[authorization] = true
	s.mu.Unlock()
	header = []hpack.HeaderField{{Name: ":status", Value: status}}
	if !silent {
		header = append(header, hpack.HeaderField{Name: "date", Value: now.UTC().Format(http.TimeFormat)})
	}
	if reason != "" {
		body = `{"reason":"` + reason + `"}`
	}
	return header, body
}

func (s *strictApple) judge(authorization string, b *binding, now time.Time) (status, reason string) {
	raw, _ := strings.CutPrefix(authorization, "bearer ")
	var claims jwt.MapClaims
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithoutClaimsValidation())
	if _, err := parser.ParseWithClaims(raw, &claims, func(*jwt.Token) (any, error) { return s.key, nil }); err != nil {
		return "403", "InvalidProviderToken"
	}
	iat, _ := claims["iat"].(float64)
	age := now.Sub(time.Unix(int64(iat), 0))
	switch {
	case b.wedged || age > time.Hour:
		b.wedged = true
		return "403", "ExpiredProviderToken"
	case age < -time.Hour:
		return "403", "InvalidProviderToken"
	case b.token == "":
		b.token = raw
		if s.everyChange {
			b.changed = time.Now()
		}
	case b.token != raw:
		if !b.changed.IsZero() && time.Since(b.changed) < 20*time.Minute {
			return "429", "TooManyProviderTokenUpdates"
		}
		b.token, b.changed = raw, time.Now()
	}
	return "200", ""
}

// turn sets its clock.
func (s *strictApple) turn(skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = skew
}

// count is the number of answers with a reason so far; "" = accepted.
func (s *strictApple) count(reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[reason]
}

// refusals is the number of all answers about the token's time.
func (s *strictApple) refusals() int {
	return s.count("ExpiredProviderToken") + s.count("InvalidProviderToken")
}

// seen is the number of different tokens that it received.
func (s *strictApple) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tokens)
}

// client opens a client of one app at s, and returns the function that closes
// it.
func (s *strictApple) client(t *testing.T, roots *x509.CertPool, topic string, tokens *TokenSource, connections int) (*Client, func()) {
	t.Helper()
	c, err := New(Options{Topic: topic, Tokens: tokens, Pool: h2.Options{
		URL: "https://apple.example", TLS: &tls.Config{RootCAs: roots}, Dial: s.dial,
		Connections: connections, StreamsPerConnection: 50, Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 1000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// send pushes n notifications at once and returns their results.
func send(t *testing.T, c *Client, n int) []push.Result {
	t.Helper()
	ds := make([]*pipeline.Delivery, n)
	for i := range ds {
		ds[i] = delivery(push.Message{PushType: "alert", Title: "t"})
		ds[i].Expires, ds[i].Deadline = 0, pipeline.UptimeAt(time.Now().Add(time.Minute))
	}
	var left sync.WaitGroup
	left.Add(n)
	if _, err := c.Lane(0).Submit(t.Context(), ds, func(back []*pipeline.Delivery) { left.Add(-len(back)) }); err != nil {
		t.Fatal(errors.Join(errors.New("submitting"), err))
	}
	left.Wait()
	results := make([]push.Result, n)
	for i, d := range ds {
		results[i] = d.Result
	}
	return results
}
