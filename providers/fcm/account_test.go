package fcm

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/pushfleet/pushfleet/push"
)

// Each account is refused only for what is wrong with it: the same file without
// the error is accepted.
func TestWhatIsWrongWithAnAccount(t *testing.T) {
	var good map[string]string
	if err := json.Unmarshal(serviceAccount(t, "https://oauth2.example/token"), &good); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ field, value, want string }{
		{"type", "service_account", ""},
		{"type", "", ""},
		{"type", "authorized_user", "type is not"},
		{"client_email", "", "no client_email"},
		{"private_key", "", "no client_email or no private_key"},
		{"token_uri", "", ""}, // default: Google's
		{"token_uri", "http://127.0.0.1:1/token", ""},
		{"token_uri", "ftp://oauth2.example/token", "token_uri"},
		{"token_uri", "https:///token", "token_uri"},
		{"token_uri", "https://oauth2.example/%zz", "token_uri"},
	} {
		file := maps.Clone(good)
		file[row.field] = row.value
		text, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		a, err := readAccount(text)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s %q: %v, want %q", row.field, row.value, err, row.want)
		}
		if err == nil && row.field == "token_uri" && row.value == "" && a.TokenURI != "https://oauth2.googleapis.com/token" {
			t.Errorf("tokens come from %s", a.TokenURI)
		}
	}
}

// A file in which something else stands where an account's name and its key's id belong
// gives nothing of it away: they are told in logs, labels of metrics and events.
func TestWhatIsNoNameIsNotTold(t *testing.T) {
	const (
		mail, id = "push@example-shop.iam.gserviceaccount.com", "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
		untold   = "of an account whose name cannot be told"
	)
	for _, tt := range []struct{ why, email, id, want string }{
		{"as Google writes it", mail, id, id + " of " + mail},
		{"no id", mail, "", mail},
		{"a part of a key", mail, "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDZ+/", mail},
		{"the server key that was used before", mail, "AAAAbcdefg1:APA91bHun4MxP5egoKMwt2KZFBaFUH-1RYqx", mail},
		{"a long line", mail, strings.Repeat("A", 65), mail},
		{"an access token", "ya29.a0AfH6SMBx-Wl0_3", id, untold},
		{"a key", "-----BEGIN PRIVATE KEY-----", id, untold},
		{"two addresses", mail + "@" + mail, id, untold},
		{"lines", mail + "\n", id, untold},
		{"too long", strings.Repeat("a", 192) + "@b", id, untold},
	} {
		if got := (&account{Email: tt.email, KeyID: tt.id}).name(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.why, got, tt.want)
		}
	}
}

func TestProjectIDs(t *testing.T) {
	for id, good := range map[string]bool{
		"shop-1": true, "example.com:Shop9": true, "azAZ09": true, "a": true, strings.Repeat("x", 128): true,
		"": false, strings.Repeat("x", 129): false, ".": false, "..": false, ".a": false, "a/b": false, "a b": false, "a%2f": false, "a?b": false, "é": false,
	} {
		if err := checkProject(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestKeys(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	text := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	for why, row := range map[string]struct {
		text string
		good bool
	}{
		"PKCS 8":       {string(keyPEM(t)), true},
		"PKCS 1":       {text(x509.MarshalPKCS1PrivateKey(rsaKey())), true},
		"not RSA":      {text(other), false},
		"no key in it": {text([]byte("x")), false},
		"no PEM":       {"x", false},
	} {
		if err := checkKey(row.text); (err == nil) != row.good {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// A token that does not say when it ends counts as one of an hour, not as one
// that has ended.
func TestTokenWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fetched atomic.Int64
		k := startKeeper(func(context.Context) (*oauth2.Token, error) {
			fetched.Add(1)
			return &oauth2.Token{AccessToken: "good"}, nil
		})
		<-k.first
		time.Sleep(54 * time.Minute)
		synctest.Wait()
		if n := fetched.Load(); n != 1 {
			t.Errorf("fetched %d times in 54 minutes", n)
		}
		if got := string(k.authorization(time.Now())); got != "Bearer good" {
			t.Errorf("authorized by %q", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := fetched.Load(); n != 2 {
			t.Errorf("fetched %d times in 56 minutes", n)
		}
		closeNow(t, k)
	})
}

// A few dead tokens among many other refusals do not trigger the guard:
// refusals that say nothing about tokens push them out of its view.
func TestDeadTokensAmongOtherRefusals(t *testing.T) {
	c := testCodec()
	for i := range 300 {
		c.Read(plain(), answered(200, `{"name":"projects/p/messages/1"}`, ""))
		for range 50 {
			c.Read(plain(), answered(503, envelope("UNAVAILABLE", "x", "Fcm:UNAVAILABLE"), ""))
		}
		got, _ := c.Read(plain(), answered(403, envelope("PERMISSION_DENIED", "x", "Fcm:SENDER_ID_MISMATCH"), ""))
		if got.Class != push.Gone {
			t.Fatalf("dead token %d of one in fifty became %+v", i, got)
		}
	}
}
