package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/account"
	"github.com/pushfleet/pushfleet/push"
)

// plain is a client without connections of HTTP/2.
type plain struct{ account account.Account }

func (*plain) Lane(int) pipeline.Provider  { return nil }
func (*plain) Close(context.Context) error { return nil }

// A platform without a section of its own gets a route for each of its
// environments, and nothing where an app has no account there.
func TestPlatformsByAccount(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("opensesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("url: must not be empty")
	open := func(a account.Account) (*plain, error) {
		if a.Settings["url"] == "" {
			return nil, refused
		}
		return &plain{a}, nil
	}
	for _, tt := range []struct {
		why      string
		platform push.Platform
		accounts map[string]string
		routes   int
		err      string
	}{
		{"no account", push.APNS, map[string]string{"fcm.url": "u"}, 0, ""},
		{"a route for each environment", push.APNS, map[string]string{"apns.url": "u", "apns.key_file": key}, 2, ""},
		{"no environments", push.FCM, map[string]string{"fcm.url": "u", "fcm.key_file": key}, 1, ""},
		{"settings that the provider refuses", push.FCM, map[string]string{"fcm.key_file": key}, 0, "accounts.fcm: url: must not be empty"},
		{"a secret that is not there", push.FCM, map[string]string{"fcm.key_file": key + "s"}, 0, "accounts.fcm.key_file: "},
	} {
		o := &opening{routes: make(routes), config: configs.Default(), log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		err := byAccount(tt.platform, open)(o, configs.App{Name: "shop", Accounts: tt.accounts})
		if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) || len(o.routes) != tt.routes {
			t.Errorf("%s: %d routes, error %v; want %d, %q", tt.why, len(o.routes), err, tt.routes, tt.err)
		}
		for r, c := range o.routes {
			a := c.(*plain).account
			if a.Route != r || r.Platform != tt.platform || r.App != "shop" || a.Secrets["key_file"] != "opensesame" || a.Lanes != len(o.config.Lanes) || a.Deadline != o.config.Send.Deadline {
				t.Errorf("%s: route %v is opened with %+v", tt.why, r, a)
			}
			if _, ok := o.routes.stats(r); ok {
				t.Errorf("%s: route %v has a pool", tt.why, r)
			}
		}
	}
}
