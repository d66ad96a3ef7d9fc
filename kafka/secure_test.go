package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// certificate returns a self-signed server certificate and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLSAndSASL(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	for _, mechanism := range []string{Plain, ScramSHA256, ScramSHA512} {
		c := newCluster(t, 1, []string{"push"}, kfake.EnableSASL(), kfake.Superuser(mechanism, "fleet", "right"),
			kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
		tests := []struct {
			reason string
			tls    *tls.Config
			sasl   *SASL
			ok     bool
		}{
			{"right password, trusted authority", &tls.Config{RootCAs: pool}, &SASL{mechanism, "fleet", "right"}, true},
			{"wrong password", &tls.Config{RootCAs: pool}, &SASL{mechanism, "fleet", "wrong-one"}, false},
			{"no login at all", &tls.Config{RootCAs: pool}, nil, false},
			{"unknown authority", &tls.Config{}, &SASL{mechanism, "fleet", "right"}, false},
		}
		for _, test := range tests {
			t.Run(mechanism+"/"+test.reason, func(t *testing.T) {
				a, err := NewAdmin(Options{Brokers: c.ListenAddrs(), TLS: test.tls, SASL: test.sasl})
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				limit := time.Second
				if test.ok {
					limit = patience
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				err = a.CheckTopics(ctx, "push")
				if (err == nil) != test.ok {
					t.Errorf("got error %v, want success: %v", err, test.ok)
				}
				if err != nil && strings.Contains(err.Error(), "wrong-one") {
					t.Error("the password is in the error")
				}
			})
		}
	}
}

// Certificates that are renewed while a client lives hold for its next connection.
func TestCertificatesAreTakenAnewForEachConnection(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	c := newCluster(t, 1, []string{"push"}, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	var current atomic.Pointer[tls.Config]
	current.Store(&tls.Config{RootCAs: x509.NewCertPool()})
	a, err := NewAdmin(Options{Brokers: c.ListenAddrs(), TLS: current.Load(), CurrentTLS: current.Load})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	brief, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if a.CheckTopics(brief, "push") == nil {
		t.Error("a broker of another authority is trusted")
	}
	current.Store(&tls.Config{RootCAs: pool})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.CheckTopics(ctx, "push"); err != nil {
		t.Errorf("with the certificates renewed: %v", err)
	}
}

func TestAPasswordIsNeverPrinted(t *testing.T) {
	s := SASL{Plain, "fleet", "hunter2"}
	o := Options{Brokers: []string{"b:1"}, SASL: &s}
	encoded, err := json.Marshal(map[string]any{"by value": s, "by pointer": &s})
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{fmt.Sprintf("%v %+v %#v %s %q", s, s, s, s, s), fmt.Sprintf("%v %+v %#v", &s, o, o), s.LogValue().String(), string(encoded)} {
		if strings.Contains(printed, "hunter2") {
			t.Errorf("got %s", printed)
		}
	}
}

func TestWhatOptionsRefuse(t *testing.T) {
	tests := []struct {
		reason string
		o      Options
	}{
		{"no broker", Options{}},
		{"no user", Options{Brokers: []string{"b:1"}, SASL: &SASL{Mechanism: Plain, Password: "x"}}},
		{"an unknown mechanism", Options{Brokers: []string{"b:1"}, SASL: &SASL{"GSSAPI", "u", "x"}}},
	}
	for _, test := range tests {
		if a, err := NewAdmin(test.o); err == nil {
			a.Close()
			t.Errorf("%s was accepted", test.reason)
		}
	}
	ok := Options{Brokers: []string{"127.0.0.1:1"}}
	for reason, so := range map[string]SourceOptions{
		"no topic":                            {Group: "g"},
		"no group":                            {Topics: mainTopic("t")},
		"a drain as long as the rebalance":    {Topics: mainTopic("t"), Group: "g", Drain: time.Minute},
		"a delay on a main topic":             {Topics: []SourceTopic{{Name: "t", Delay: time.Second}}, Group: "g"},
		"a retry topic without a delay":       {Topics: tier("t", 0), Group: "g"},
		"a lane's own topic beside others":    {Topics: append(tier("t", time.Second), SourceTopic{Name: "u"}), Group: "g"},
		"a topic twice":                       {Topics: append(tier("t", time.Second), SourceTopic{Name: "t", Kind: Hold}), Group: "g"},
		"a kind that nobody knows":            {Topics: []SourceTopic{{Name: "t", Kind: 7}}, Group: "g"},
		"less room in all than for one batch": {Topics: mainTopic("t"), Group: "g", OpenRecords: 10},
		"a negative batch":                    {Topics: mainTopic("t"), Group: "g", BatchRecords: -1},
	} {
		if s, err := NewSource(ok, so); err == nil {
			_ = s.Close(t.Context())
			t.Errorf("%s was accepted", reason)
		}
	}
}
