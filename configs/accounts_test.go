package configs

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

func TestAccountsOfAPlatform(t *testing.T) {
	t.Parallel()
	app := App{Accounts: map[string]string{"apns.url": "u", "apns.a.b": "c", "fcm.key_file": "k"}}
	if got := app.Account(push.APNS); !maps.Equal(got, map[string]string{"url": "u", "a.b": "c"}) {
		t.Errorf("of apns: %v", got)
	}
	if got := (&App{}).Account(push.FCM); got != nil {
		t.Errorf("of nothing: %v", got)
	}
	c := Config{Apps: []App{{Name: "shop", Accounts: app.Accounts}}}
	without := c
	without.Apps = []App{{Name: "shop"}}
	if with, without := c.routes(), without.routes(); with != without+3 {
		t.Errorf("%d routes, %d without accounts; apns has two environments, fcm one route", with, without)
	}
}

// Only settings that are named so are files, and a secret's content is never told.
func TestSecretsOfAccounts(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("opensesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Secrets(map[string]string{"url": "/nowhere", "key_file": key})
	if err != nil || len(got) != 1 || got["key_file"].Reveal() != "opensesame" {
		t.Errorf("%v, error %v", got, err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Apps = []App{{Name: "shop", Accounts: map[string]string{"beep.key_file": key}}}
	problems, _ := c.CheckFiles().(Problems)
	if len(problems) != 1 || problems[0].Path != "apps[0].accounts" || !strings.Contains(problems[0].Message, "key_file") || strings.Contains(problems[0].Message, "opensesame") {
		t.Errorf("a secret that all may read: %v", problems)
	}
}
