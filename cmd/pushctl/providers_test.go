package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/providers/sim"
)

// appsConfig is a configuration with two apps at a simulator. The key of the second is
// that of the first, which its team does not have.
func appsConfig(t *testing.T) (path string, secrets []string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var all []*sim.Credentials
	var o sim.Options
	for _, name := range []string{"shop", "bank"} {
		c, err := sim.NewCredentials(name, "com.example."+name)
		if err != nil {
			t.Fatal(err)
		}
		all, o.Apps = append(all, c), append(o.Apps, c.App())
	}
	s, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the test is over
	ca := file("ca.pem", s.CAPEM())
	text := "apps:\n"
	for i, c := range all {
		account, err := c.ServiceAccount(s.TokenURI())
		if err != nil {
			t.Fatal(err)
		}
		text += "  - name: " + c.Name + "\n" +
			"    apns: {topic: " + c.Topic + ", team_id: " + c.TeamID + ", key_id: " + c.KeyID + ", key_file: " + file(c.Name+".p8", all[0].P8) +
			", environments: [production], production_url: '" + s.URL() + "', ca_file: " + ca + "}\n" +
			"    fcm: {project: " + c.Project + ", service_account_file: " + file(c.Name+".json", account) + ", url: '" + s.URL() + "', ca_file: " + ca + "}\n"
		secrets = append(secrets, strings.Split(string(all[i].P8), "\n")[1], strings.Split(string(account), "PRIVATE KEY-----")[1])
	}
	return configFile(t, text), secrets
}

func TestProvidersCheck(t *testing.T) {
	path, secrets := appsConfig(t)
	for name, tt := range map[string]struct {
		args  []string
		exit  int
		words []string
	}{
		"all":         {nil, 1, []string{"apns/shop", "com.example.shop was pushed to a device that does not exist", "fcm/bank", "FAILED", "InvalidProviderToken", "3 of 4 routes", "team_id do not belong together"}},
		"one":         {[]string{"--app", "shop"}, 0, []string{"2 of 2 routes would be taken"}},
		"nobody":      {[]string{"--app", "shop,shops"}, 2, []string{`no app "shops"; the configuration has shop, bank`}},
		"no time":     {[]string{"--timeout", "0s"}, 2, []string{"--timeout"}},
		"little time": {[]string{"--timeout", "1ns"}, 1, []string{"no answer in time", "0 of 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			exit, out, errs := pushctl(t, t.Context(), append([]string{"providers", "check", "--config", path}, tt.args...)...)
			if exit != tt.exit {
				t.Errorf("got exit status %d, want %d\n%s%s", exit, tt.exit, out, errs)
			}
			for _, w := range tt.words {
				if !strings.Contains(out+errs, w) {
					t.Errorf("%q is missing in\n%s%s", w, out, errs)
				}
			}
			for _, s := range secrets {
				if strings.Contains(out+errs, s) {
					t.Error("a key is printed")
				}
			}
		})
	}
}

func TestProvidersCheckAsJSON(t *testing.T) {
	path, _ := appsConfig(t)
	exit, out, errs := pushctl(t, t.Context(), "providers", "check", "--config", path, "-o", "json")
	var rows []map[string]any
	if err := json.Unmarshal([]byte(out), &rows); err != nil || exit != 1 || len(rows) != 4 {
		t.Fatalf("got exit status %d, %d rows, error %v\n%s%s", exit, len(rows), err, out, errs)
	}
	for i, want := range []struct {
		route string
		ok    bool
	}{{"apns/shop/production", true}, {"fcm/shop", true}, {"apns/bank/production", false}, {"fcm/bank", true}} {
		if r := rows[i]; r["route"] != want.route || r["ok"] != want.ok || len(r["steps"].([]any)) < 3 {
			t.Errorf("got row %v, want %v", r, want)
		}
	}
}

// Without apps, and with a file that is not there, it says which key is at fault.
func TestProvidersCheckOfAWrongConfiguration(t *testing.T) {
	exit, _, errs := pushctl(t, t.Context(), "providers", "check")
	if exit != 2 || !strings.Contains(errs, "no app with apns or fcm") {
		t.Errorf("got exit status %d: %s", exit, errs)
	}
	path := configFile(t, "apps:\n  - name: shop\n    fcm: {project: shop-1, service_account_file: /nowhere/account.json}\n")
	exit, out, errs := pushctl(t, t.Context(), "providers", "check", "--config", path)
	if exit != 1 || !strings.Contains(out+errs, "fcm.service_account_file") {
		t.Errorf("got exit status %d: %s%s", exit, out, errs)
	}
}
