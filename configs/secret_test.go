package configs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const canary = "s3cr3t-c4n4ry"

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	s := Secret{canary}
	holder := struct {
		Password Secret
		Pointer  *Secret
		Map      map[string]Secret
	}{s, &s, map[string]Secret{"k": s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%10s"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", &s)
	}
	fmt.Fprintf(&out, "%v %+v\n", holder, holder)
	fmt.Fprintln(&out, s, s.String(), fmt.Errorf("with %v", s))
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("x", "secret", s, "pointer", &s, "holder", holder)
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		text, err := marshal(holder)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	if strings.Contains(out.String(), canary) || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		t.Errorf("it shows in\n%s", out.String())
	}
	if n := strings.Count(out.String(), "[secret]"); n < 30 {
		t.Errorf("only %d of the places say [secret]:\n%s", n, out.String())
	}
	if s.Reveal() != canary {
		t.Error("Reveal does not give it")
	}
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // past the umask
		t.Fatal(err)
	}
	return path
}

func TestReadSecretLooksAtTheMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for mode, ok := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o700: true,
		0o644: false, 0o640: false, 0o604: false, 0o620: false, 0o601: false, 0o666: false,
	} {
		path := writeFile(t, filepath.Join(dir, fmt.Sprintf("m%o", mode)), canary+"\r\n", mode)
		s, err := ReadSecret(path)
		switch {
		case ok && err != nil:
			t.Errorf("%04o: %v", mode, err)
		case ok && s.Reveal() != canary:
			t.Errorf("%04o: read %q", mode, s.Reveal())
		case !ok && err == nil:
			t.Errorf("%04o was accepted", mode)
		case !ok && (!strings.Contains(err.Error(), path) || strings.Contains(err.Error(), canary)):
			t.Errorf("%04o: %v", mode, err)
		}
	}
}

// A Kubernetes volume: password -> ..data/password, ..data -> a directory.
func TestReadSecretFromAKubernetesVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "..2026_11_21", "password"), canary, 0o644)
	for link, target := range map[string]string{"..data": "..2026_11_21", "password": "..data/password", "elsewhere": "..2026_11_21/password"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := ReadSecret(filepath.Join(dir, "password")); err != nil || s.Reveal() != canary {
		t.Errorf("got %q, %v", s.Reveal(), err)
	}
	if _, err := ReadSecret(filepath.Join(dir, "elsewhere")); err == nil {
		t.Error("any other link was taken for a volume's")
	}
	// A plain directory called ..data is no volume.
	other := t.TempDir()
	writeFile(t, filepath.Join(other, "..data", "password"), canary, 0o644)
	if err := os.Symlink("..data/password", filepath.Join(other, "password")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSecret(filepath.Join(other, "password")); err == nil {
		t.Error("a directory called ..data was taken for a volume")
	}
}

func TestReadSecretRefusesUnusableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, path := range map[string]string{
		"none given": "", "missing": filepath.Join(dir, "none"), "a directory": dir,
		"empty":     writeFile(t, filepath.Join(dir, "empty"), "\n", 0o600),
		"too large": writeFile(t, filepath.Join(dir, "large"), strings.Repeat("x", maxSecret+1), 0o600),
	} {
		if s, err := ReadSecret(path); err == nil {
			t.Errorf("%s: read %d bytes", name, len(s.Reveal()))
		}
	}
}

// A key that stands where its file's name belongs is not repeated in the error.
func TestReadSecretDoesNotRepeatASecret(t *testing.T) {
	t.Parallel()
	const part = "MIGTAgEAMBMGByqGSM49"
	for _, given := range []string{
		"-----BEGIN PRIVATE KEY-----\n" + part + "\n-----END PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----" + part,
		`{"private_key":"` + part + `"}`, "\n  {" + part, "Key-Id: ABCDE12345\n" + part, part + "\x00",
	} {
		if _, err := ReadSecret(given); err == nil || strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", given, err)
		}
	}
}

// certificate makes a self-signed one for a name.
func certificate(t *testing.T, name string) (cert, key []byte, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

func TestTLSConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, _ := certificate(t, "kafka.example")
	certFile := writeFile(t, filepath.Join(dir, "cert.pem"), string(cert), 0o644)
	keyFile := writeFile(t, filepath.Join(dir, "key.pem"), string(key), 0o600)
	if c, err := (&TLS{}).Config(); c != nil || err != nil {
		t.Errorf("not enabled: %v, %v", c, err)
	}
	c, err := (&TLS{Enabled: true, CAFile: certFile, CertFile: certFile, KeyFile: keyFile, ServerName: "kafka.example"}).Config()
	if err != nil {
		t.Fatal(err)
	}
	if c.MinVersion != tls.VersionTLS12 || c.InsecureSkipVerify || c.RootCAs == nil || len(c.Certificates) != 1 || c.ServerName != "kafka.example" {
		t.Errorf("got %+v", c)
	}
	if c, err := (&TLS{Enabled: true}).Config(); err != nil || c.RootCAs != nil {
		t.Errorf("without a CA file the system's must hold: %v", err)
	}
	openKey := writeFile(t, filepath.Join(dir, "open.pem"), string(key), 0o644)
	_, otherKey, _ := certificate(t, "other")
	wrongKey := writeFile(t, filepath.Join(dir, "wrong.pem"), string(otherKey), 0o600)
	junk := writeFile(t, filepath.Join(dir, "junk.pem"), canary, 0o600)
	half := writeFile(t, filepath.Join(dir, "half.pem"), string(cert)+string(cert[:len(cert)/2]), 0o644) // still being written
	for name, bad := range map[string]TLS{
		"CA missing":      {Enabled: true, CAFile: filepath.Join(dir, "none")},
		"CA is no PEM":    {Enabled: true, CAFile: junk},
		"CA is a key":     {Enabled: true, CAFile: keyFile},
		"key of another":  {Enabled: true, CertFile: certFile, KeyFile: wrongKey},
		"key is no PEM":   {Enabled: true, CertFile: certFile, KeyFile: junk},
		"key is open":     {Enabled: true, CertFile: certFile, KeyFile: openKey},
		"cert is missing": {Enabled: true, CertFile: filepath.Join(dir, "none"), KeyFile: keyFile},
		"CA is cut off":   {Enabled: true, CAFile: half},
		"chain cut off":   {Enabled: true, CertFile: half, KeyFile: keyFile},
	} {
		_, err := bad.Config()
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What TLSConfig gives really checks the server: a certificate of its CA for
// its name, and TLS 1.2 at least.
func TestTLSConfigChecksTheServer(t *testing.T) {
	t.Parallel()
	cert, _, pair := certificate(t, "localhost")
	stranger, _, _ := certificate(t, "localhost")
	dir := t.TempDir()
	ca := writeFile(t, filepath.Join(dir, "ca.pem"), string(cert), 0o644)
	otherCA := writeFile(t, filepath.Join(dir, "other.pem"), string(stranger), 0o644)
	for name, tt := range map[string]struct {
		client TLS
		max    uint16
		ok     bool
	}{
		"its CA and name": {TLS{CAFile: ca, ServerName: "localhost"}, tls.VersionTLS13, true},
		"TLS 1.2":         {TLS{CAFile: ca, ServerName: "localhost"}, tls.VersionTLS12, true},
		"TLS 1.1":         {TLS{CAFile: ca, ServerName: "localhost"}, tls.VersionTLS11, false},
		"another CA":      {TLS{CAFile: otherCA, ServerName: "localhost"}, tls.VersionTLS13, false},
		"the system's":    {TLS{ServerName: "localhost"}, tls.VersionTLS13, false},
		"another name":    {TLS{CAFile: ca, ServerName: "example.com"}, tls.VersionTLS13, false},
	} {
		tt.client.Enabled = true
		c, err := tt.client.Config()
		if err != nil {
			t.Fatal(name, err)
		}
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: tt.max})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() { // ends with its one connection, which the dial below makes
			defer close(served)
			if conn, err := listener.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake() // the client's verdict is what counts
				conn.Close()
			}
		}()
		conn, err := tls.Dial("tcp", listener.Addr().String(), c)
		if err == nil {
			conn.Close()
		}
		<-served
		listener.Close()
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := Default()
	paths := func(err error) (paths []string) {
		ps, _ := err.(Problems)
		for _, p := range ps {
			paths = append(paths, p.Path)
		}
		return paths
	}
	if err := c.CheckFiles(); err != nil {
		t.Errorf("the defaults name no file: %v", err)
	}
	if got := paths(c.CheckRun()); !slices.Equal(got, []string{"apps"}) {
		t.Errorf("without apps: %v", got)
	}
	secret := writeFile(t, filepath.Join(dir, "secret"), canary, 0o600)
	open := writeFile(t, filepath.Join(dir, "open"), canary, 0o644)
	cert, _, _ := certificate(t, "ca")
	ca := writeFile(t, filepath.Join(dir, "ca.pem"), string(cert), 0o644)
	good := App{Name: "a", APNS: &APNS{KeyFile: secret, CAFile: ca}, FCM: &FCM{ServiceAccountFile: secret, CAFile: ca}}
	c.Apps = []App{good}
	c.Kafka.TLS = TLS{Enabled: true, CAFile: ca}
	c.Kafka.SASL.PasswordFile, c.Redis.PasswordFile, c.Cassandra.PasswordFile = secret, secret, secret
	if err := c.CheckRun(); err != nil {
		t.Errorf("all there: %v", err)
	}
	c.Apps = []App{good, {Name: "b", APNS: &APNS{KeyFile: open, CAFile: secret}, FCM: &FCM{ServiceAccountFile: dir, CAFile: dir}}}
	c.Redis.TLS = TLS{Enabled: true, CAFile: filepath.Join(dir, "none")}
	c.Kafka.SASL.PasswordFile, c.Redis.PasswordFile, c.Cassandra.PasswordFile = open, "none", open
	err := c.CheckRun()
	want := []string{"redis.tls", "kafka.sasl.password_file", "redis.password_file", "cassandra.password_file",
		"apps[1].apns.key_file", "apps[1].apns.ca_file", "apps[1].fcm.service_account_file", "apps[1].fcm.ca_file"}
	if got := paths(err); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if strings.Contains(err.Error(), canary) {
		t.Errorf("content in %v", err)
	}
}
