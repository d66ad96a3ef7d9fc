package webhooks

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func fileOf(entries ...string) string { return `{"webhooks": [` + strings.Join(entries, ",") + `]}` }

func entry(sender, url string, secrets ...string) string {
	return `{"sender": "` + sender + `", "url": "` + url + `", "secrets": ["` + strings.Join(secrets, `","`) + `"]}`
}

func TestFilesOfEndpoints(t *testing.T) {
	const url = "https://hooks.example.com/"
	for text, wrong := range map[string]string{
		fileOf():                         "",
		fileOf(entry("a", url, secretA)): "",
		fileOf(entry("a", url, secretA, secretB), entry("b", url, secretA)):                 "",
		fileOf(entry("a", url, secretA), entry("a", url, secretA)):                          "webhooks[1].sender",
		fileOf(entry("-a", url, secretA)):                                                   "webhooks[0].sender",
		fileOf(entry("a", "http://x.example", secretA)):                                     "webhooks[0].url: want https",
		fileOf(entry("a", "https://10.0.0.1/", secretA)):                                    "webhooks[0].url: 10.0.0.1 is no address",
		fileOf(entry("a", url, secretA, secretB, secretA)):                                  "webhooks[0].secrets: has 3",
		fileOf(`{"sender": "a", "url": "https://x.example", "secrets": []}`):                "webhooks[0].secrets: has 0",
		fileOf(entry("a", url, secretA, secretA[6:])):                                       "webhooks[0].secrets[1]",
		fileOf(`{"sender": "a", "secret": "` + secretA + `"}`):                              "unknown field",
		fileOf(`{"sender": "a", "url": "https://x.example", "secrets": "` + secretA + `"}`): "webhooks.secrets is no []string",
		`{"webhooks": [` + entry("a", url, secretA) + `], "webhooks": [{"sender": "b"}]}`:   "the member webhooks is there twice",
		fileOf() + "x":             "something follows",
		`{"webhooks": [` + secretA: "no JSON at byte",
		"":                         "not a file of webhooks",
	} {
		_, err := parseEndpoints([]byte(text), CheckAddress)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", text, err, wrong)
		}
		if err != nil && strings.Contains(err.Error(), secretA[6:]) {
			t.Errorf("the error has the secret: %v", err)
		}
	}
}

// A file that changes is in force soon, and one that cannot be used leaves the former.
func TestEndpointsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards what follows
		text, failure := fileOf(entry("a", "https://x.example/", secretA)), error(nil)
		var told []error
		e, err := OpenEndpoints(func() ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			return []byte(text), failure
		}, CheckAddress)
		if err != nil {
			t.Fatal(err)
		}
		go e.Watch(t.Context(), time.Second, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		})
		file := func(now string, err error) {
			mu.Lock()
			defer mu.Unlock()
			text, failure = now, err
		}
		step := func(senders ...string) {
			t.Helper()
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			if got := e.Senders(); !slices.Equal(got, senders) {
				t.Errorf("in force are %q, want %q", got, senders)
			}
		}
		step("a")
		first := e.Of("a")
		file(fileOf(entry("a", "https://x.example/", secretB), entry("b", "https://x.example/", secretB)), nil)
		step("a", "b")
		if e.Of("a").version == first.version || e.Of("c") != nil {
			t.Error("another secret is no other endpoint, or nobody has one")
		}
		file("{", nil)
		step("a", "b")
		file("{", errors.New("gone"))
		step("a", "b")
		file(fileOf(), nil)
		step()
		mu.Lock()
		defer mu.Unlock()
		if len(told) < 4 || told[0] != nil || told[1] == nil || told[len(told)-1] != nil {
			t.Errorf("told %v", told)
		}
	})
	if _, err := OpenEndpoints(func() ([]byte, error) { return nil, errors.New("none") }, CheckAddress); err == nil {
		t.Error("opened without a file")
	}
}

func FuzzEndpoints(f *testing.F) {
	f.Add([]byte(fileOf(entry("a", "https://x.example/", secretA))))
	f.Add([]byte(`{"webhooks": null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseEndpoints(text, CheckAddress)
		for sender, e := range all {
			if err != nil || !strings.HasPrefix(strings.ToLower(e.URL), "https://") || len(e.Secrets) == 0 || !senderName.MatchString(sender) {
				t.Errorf("%q: %+v, %v", sender, e, err)
			}
		}
	})
}
