package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

var (
	appleToken  = strings.Repeat("0123456789abcdef", 4)
	googleToken = "fcm-registration:APA91bSECRETSECRETSECRET"
)

const when = "2026-11-01T10:00:00Z"

func TestDeviceLines(t *testing.T) {
	header := "user_id,platform,token,app,environment,locale,registered_at"
	for _, tt := range []struct {
		why, csv, json string
		rule           string // empty = accepted
	}{
		{"all fields", "u1,apns," + appleToken + ",shop,sandbox,en-GB," + when,
			`{"user_id":"u1","platform":"apns","token":"` + appleToken + `","app":"shop","environment":"sandbox","locale":"en-GB","registered_at":"` + when + `","app_version":"7.1"}`, ""},
		{"an app version that is too long", "", `{"user_id":"u1","platform":"fcm","token":"t","app":"shop","registered_at":"` + when + `","app_version":"` + strings.Repeat("7", 65) + `"}`, "app_version"},
		{"quotes and spaces", `"u,1" , fcm ,"` + googleToken + `",shop,,,` + when, "", `not CSV`},
		{"quotes around a comma", `"u,1",fcm,"` + googleToken + `",shop,,,` + when, "", ""},
		{"platform", "u1,ios," + appleToken + ",shop,,," + when, `{"user_id":"u1","platform":"ios","token":"` + appleToken + `"}`, "platform"},
		{"token of the wrong alphabet", "u1,apns,xyz/" + appleToken + ",shop,,," + when,
			`{"user_id":"u1","platform":"fcm","token":"a/` + appleToken + `","app":"shop","registered_at":"` + when + `"}`, "token"},
		{"no user", ",fcm," + googleToken + ",shop,,," + when, `{"platform":"fcm","token":"` + googleToken + `","app":"shop","registered_at":"` + when + `"}`, "user"},
		{"an environment of Google's", "u1,fcm," + googleToken + ",shop,production,," + when, "", "environment"},
		{"no time", "u1,fcm," + googleToken + ",shop,,,", `{"user_id":"u1","platform":"fcm","token":"` + googleToken + `","app":"shop"}`, "--registered-at"},
		{"no such time", "u1,fcm," + googleToken + ",shop,,,yesterday", "", "RFC 3339"},
		{"too few fields", "u1,fcm," + googleToken, "", "not the 7 fields"},
		{"a quote that does not end", `u1,fcm,"` + googleToken + ",shop,,," + when, "", "not CSV"},
		{"broken JSON", "", `{"token":"` + googleToken, "not one JSON object"},
		{"two objects", "", `{"user_id":"u1"} {"token":"` + googleToken + `"}`, "not one JSON object"},
		{"an array", "", `["` + googleToken + `"]`, "not one JSON object"},
		{"a number", "", `{"user_id":42,"token":"` + googleToken + `"}`, "not a string"},
		{"no UTF-8", "", "{\"user_id\":\"a\xff\"}", "not UTF-8"},
		{"a field twice", "", `{"user_id":"a","user_id":"b"}`, "a field that is there twice"},
		{"a field in other letters", "", `{"user_id":"a","user_ID":"b"}`, "a field that is there twice, or not in small letters"},
		{"an unknown field", "", `{"` + googleToken + `":"x"}`, "a field other than"},
	} {
		fromCSV, err := parseCSV([]byte(header))
		if err != nil {
			t.Fatal(err)
		}
		for form, in := range map[string]struct {
			parse deviceParser
			text  string
		}{"csv": {fromCSV, tt.csv}, "json": {parseJSON, tt.json}} {
			if in.text == "" {
				continue
			}
			var d deviceLine
			err := in.parse([]byte(in.text), &d)
			if err == nil {
				_, err = registration(&d, time.Time{})
			}
			switch {
			case tt.rule == "" && err != nil:
				t.Errorf("%s (%s): refused: %v", tt.why, form, err)
			case tt.rule != "" && (err == nil || !strings.Contains(err.Error(), tt.rule)):
				t.Errorf("%s (%s): %v, want a rule about %q", tt.why, form, err, tt.rule)
			case err != nil && (strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), appleToken)):
				t.Errorf("%s (%s): the token is told: %v", tt.why, form, err)
			}
		}
	}
}

func TestHeadersOfCSV(t *testing.T) {
	for header, want := range map[string]string{
		"user_id,platform,token,app":             "",
		"App, TOKEN ,platform,user_id,locale":    "",
		"user_id,platform,token,app,app_version": "",
		"user_id;platform;token;app":             "column 1",
		"user_id,platform,token":                 "no column app",
		"user_id,platform,token,app,token":       "column token twice",
		"user_id,platform,token,app,device_type": "column 5",
	} {
		_, err := parseCSV([]byte(header))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", header, err, want)
		}
	}
}

func TestReadLines(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	fits := strings.Repeat("y", maxLine)
	var got []string
	var failed error
	for l := range readLines(strings.NewReader("\xef\xbb\xbfa\r\n\n  \nb\n"+long+"\n"+fits+"\nlast"), &failed) {
		text := string(l.text)
		if text == fits {
			text = "fits"
		}
		got = append(got, fmt.Sprintf("%d:%s:%v", l.number, text, l.err))
	}
	want := fmt.Sprintf("1:a:<nil> 4:b:<nil> 5::%v 6:fits:<nil> 7:last:<nil>", errLongLine)
	if s := strings.Join(got, " "); s != want || failed != nil {
		t.Errorf("got %s (%v), want %s", s, failed, want)
	}
}

func TestImport(t *testing.T) {
	var file strings.Builder
	file.WriteString("user_id,platform,token,app,registered_at\n")
	for i := range 2500 {
		if i == 1500 {
			file.WriteString("u,apns,SECRET,shop," + when + "\n") // line 1502
		}
		fmt.Fprintf(&file, "u%d,fcm,token-%d,shop,%s\n", i, i, when)
	}
	path := filepath.Join(t.TempDir(), "devices.csv")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		flags []string
		want  importAnswer
	}{
		{nil, importAnswer{Read: 1501, Registered: 1500, Refused: 1, StoppedAt: 1502}},
		{[]string{"--on-error", "skip"}, importAnswer{Read: 2501, Registered: 2500, Refused: 1}},
		{[]string{"--on-error", "skip", "--dry-run"}, importAnswer{Read: 2501, Registered: 2500, Refused: 1, DryRun: true}},
	} {
		f := startFleet(t, true)
		exit, stdout, stderr := f.run("", append([]string{"devices", "import", path, "-o", "json"}, tt.flags...)...)
		var got importAnswer
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatalf("%v: %v: %s %s", tt.flags, err, stdout, stderr)
		}
		rules := got.Rules
		got.Rules = nil
		if exit != exitFailed || fmt.Sprint(got) != fmt.Sprint(tt.want) || rules["invalid token: not 64 to 512 hex digits, an even number"] != 1 {
			t.Errorf("%v: exit status %d, %+v %v, want %+v", tt.flags, exit, got, rules, tt.want)
		}
		if !strings.Contains(stderr, "line 1502: invalid token") || strings.Contains(stdout+stderr, "SECRET") {
			t.Errorf("%v: told %q", tt.flags, stderr)
		}
		registered := tt.want.Registered
		if tt.want.DryRun {
			registered = 0
		}
		if n := len(f.records(kafka.UsersTopic)); n != registered {
			t.Errorf("%v: %d records in %s, want %d", tt.flags, n, kafka.UsersTopic, registered)
		}
	}
}

// A user from registration to removal, through the topic, the registry and
// Redis.
func TestDevicesAndPreferences(t *testing.T) {
	f := startFleet(t, true)
	if exit, _, stderr := f.run("", "devices", "get", "u1"); exit != exitFailed || !strings.Contains(stderr, "pushworker registry") {
		t.Errorf("without a registry: exit status %d, %s", exit, stderr)
	}
	f.startRegistry()
	if exit, stdout, _ := f.run("", "devices", "get", "u1"); exit != exitFailed || stdout != "user u1 has no device\n" {
		t.Errorf("no device: exit status %d, %q", exit, stdout)
	}
	line := `{"user_id":"u1","platform":"fcm","token":"` + googleToken + `","app":"shop","locale":"nl","app_version":"7.1"}`
	if exit, _, stderr := f.run(line, "devices", "import", "--format", "jsonl", "--registered-at", when, "-"); exit != exitDone {
		t.Fatalf("import: exit status %d: %s", exit, stderr)
	}
	exit, stdout, stderr := f.run(appleToken+"\n", "devices", "add", "--user", "u1", "--platform", "apns", "--app", "shop",
		"--environment", "sandbox", "--app-version", "6.0", "--registered-at", when, "--token-file", "-", "-o", "json")
	hash := push.DeviceHash(push.APNS, appleToken)
	if exit != exitDone || !strings.Contains(stdout, `"hash": "`+hash+`"`) {
		t.Fatalf("add: exit status %d: %s %s", exit, stdout, stderr)
	}
	f.ok("prefs", "set", "u1", "--opt-out-type", "promo", "--opt-out-channel", "mail")
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"devices", "get", "u1", "-o", "json"}, []string{`"user_id": "u1"`, `"hash": "` + hash + `"`, `"environment": "sandbox"`, `"platform": "fcm"`, `"locale": "nl"`, `"app_version": "7.1"`, `"registered_at": "` + when + `"`}},
		{[]string{"devices", "get", "u1"}, []string{hash, "2026-11-01T10:00:00.000Z", "6.0"}},
		{[]string{"prefs", "get", "u1", "-o", "json"}, []string{`"opt_out_all": false`, `"mail"`, `"promo"`}},
	} {
		stdout := f.until(tt.want, tt.args...)
		if strings.Contains(stdout, appleToken) || strings.Contains(stdout, "SECRET") {
			t.Errorf("%v shows a token: %s", tt.args, stdout)
		}
	}
	f.ok("devices", "rm", "u1", hash)
	f.until([]string{`"platform": "fcm"`, "!" + hash}, "devices", "get", "u1", "-o", "json")
	if stdout := f.ok("devices", "rm", "u1", "--all", "-o", "json"); !strings.Contains(stdout, push.DeviceHash(push.FCM, googleToken)) {
		t.Errorf("rm --all: %s", stdout)
	}
	f.until([]string{"has no device"}, "devices", "get", "u1")
	f.ok("prefs", "set", "u1", "--clear")
	f.until([]string{"!promo", "no"}, "prefs", "get", "u1")
}

// Profile, limits and preferences of a user from the command line to Redis and back.
// What a command does not name stays; the next command finds what the last one did.
func TestProfilesAndPersonalLimits(t *testing.T) {
	f := startFleet(t, true)
	f.startRegistry()
	f.until([]string{"no personal limits"}, "prefs", "limits", "get", "u1") // the registry is there
	for _, tt := range []struct {
		args []string
		want string // JSON without spaces
	}{
		{[]string{"profile", "set", "u1", "--time-zone", "Asia/Kathmandu", "--number", "0"}, `"time_zone":"Asia/Kathmandu","country":"","user_number":0,"last_activity":null,"clock":"Asia/Kathmandu","clock_from":"theuser'szone"`},
		{[]string{"profile", "set", "u1", "--country", "NP", "--last-activity", when}, `"time_zone":"Asia/Kathmandu","country":"NP","user_number":0,"last_activity":"` + when + `"`},
		{[]string{"profile", "set", "u1", "--time-zone", "", "--locale", "ne"}, `"locale":"ne","time_zone":"","country":"NP","user_number":0,"last_activity":"` + when + `","clock":"UTC","clock_from":"thedefaultzone"`},
		{[]string{"profile", "set", "u1", "--locale", "ne"}, `"locale":"ne","time_zone":"","country":"NP"`},
		{[]string{"profile", "get", "u1"}, `"locale":"ne","time_zone":"","country":"NP","user_number":0`},
		{[]string{"prefs", "limits", "set", "u1", "promo=2", "all=an=hour=30"}, `"limits":{"all=an=hour":30,"promo":2}`},
		{[]string{"prefs", "limits", "set", "u1", "promo=3", "news=1"}, `"limits":{"all=an=hour":30,"news":1,"promo":3}`},
		{[]string{"prefs", "limits", "unset", "u1", "promo", "nothing"}, `"limits":{"all=an=hour":30,"news":1}`},
		{[]string{"prefs", "limits", "get", "u1"}, `"limits":{"all=an=hour":30,"news":1}`},
		{[]string{"prefs", "limits", "unset", "u1", "--all"}, `"limits":{}`},
		{[]string{"profile", "set", "u1", "--clear"}, `"locale":"","time_zone":"","country":"","user_number":null`},
		{[]string{"prefs", "set", "u1", "--blocked", "--opt-out-sender", "shop", "--opt-in", "survey", "--quiet-hours", "22:00-07:00", "--quiet-hours", "13:00-14:30 types=promo,news days=sun,mon"},
			`"blocked":true,"opt_out_senders":["shop"],"opt_in_types":["survey"],"quiet_hours":[{"from":"22:00","to":"07:00","days":[],"types":[]},{"from":"13:00","to":"14:30","days":["mon","sun"],"types":["promo","news"]}]`},
	} {
		stdout := f.ok(append(tt.args, "-o", "json")...)
		if got := strings.Join(strings.Fields(stdout), ""); !strings.Contains(got, tt.want) {
			t.Errorf("%v: %s, want %s", tt.args, got, tt.want)
		}
	}
	f.until([]string{`"blocked": true`, `"13:00"`, `"survey"`}, "prefs", "get", "u1", "-o", "json")
	f.until([]string{"22:00-07:00; 13:00-14:30 days=mon,sun types=promo,news"}, "prefs", "get", "u1")
}

// until repeats a command until its output contains everything in want; "!x"
// means that x must be absent.
func (f *fleet) until(want []string, args ...string) (stdout string) {
	f.t.Helper()
	for ctx := f.t.Context(); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		_, stdout, _ = f.run("", args...)
		all := stdout != ""
		for _, w := range want {
			without, not := strings.CutPrefix(w, "!")
			all = all && strings.Contains(stdout, without) != not
		}
		if all {
			break
		}
		if f.deadline.Before(time.Now()) {
			f.t.Fatalf("%v: still %s", args, stdout)
		}
	}
	return stdout
}

func TestWrongUsageOfDevicesAndPreferences(t *testing.T) {
	f := startFleet(t, true)
	for _, tt := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"devices", "rm", "u1"}, "either hashes of devices or --all"},
		{[]string{"devices", "rm", "u1", "x", "--all"}, "either hashes of devices or --all"},
		{[]string{"devices", "rm", "u1", "short"}, "invalid device hash"},
		{[]string{"devices", "import", "nowhere.csv"}, "nowhere.csv"},
		{[]string{"devices", "import", "-"}, "--format"},
		{[]string{"devices", "import", "--format", "xml", "-"}, "--format: want csv or jsonl"},
		{[]string{"devices", "import", "--format", "csv", "-"}, "line 1: missing header"},
		{[]string{"devices", "import", "--format", "csv", "--on-error", "ask", "-"}, "want stop or skip"},
		{[]string{"devices", "import", "--format", "csv", "--registered-at", "now", "-"}, "--registered-at"},
		{[]string{"devices", "add", "--user", "u1"}, "devices add needs --platform"},
		{[]string{"devices", "add", "--user", "u1", "--platform", "fcm", "--app", "shop", "--token-file", "-"}, "invalid token"},
		{[]string{"prefs", "set", "u1"}, "either preferences or --clear"},
		{[]string{"prefs", "set", "u1", "--opt-out-all", "--clear"}, "either preferences or --clear"},
		{[]string{"prefs", "set", "u1", "--quiet-hours", "22-7"}, "two times from 00:00 to 23:59"},
		{[]string{"prefs", "set", "u1", "--quiet-hours", "22:00-24:00"}, "two times from 00:00 to 23:59"},
		{[]string{"prefs", "set", "u1", "--quiet-hours", ""}, "want such as 22:00-07:00"},
		{[]string{"prefs", "set", "u1", "--quiet-hours", "22:00-07:00 days=someday"}, "days are some of"},
		{[]string{"prefs", "set", "u1", "--quiet-hours", "22:00-07:00 promo"}, "want days=… or types=…"},
		{[]string{"prefs", "set", "u1", "--quiet-hours", "22:00-07:00 types="}, "quiet_hours"},
		{[]string{"prefs", "limits", "set", "u1", "promo"}, "NAME=N"},
		{[]string{"prefs", "limits", "set", "u1", "=3"}, "NAME=N"},
		{[]string{"prefs", "limits", "set", "u1", "promo=many"}, "NAME=N"},
		{[]string{"prefs", "limits", "set", "u1", "promo=0"}, "not from 1 to 4096"},
		{[]string{"prefs", "limits", "set", "u1", "promo=1", "promo=2"}, "the same name twice"},
		{[]string{"prefs", "limits", "unset", "u1"}, "either names of limits or --all"},
		{[]string{"prefs", "limits", "unset", "u1", "promo", "--all"}, "either names of limits or --all"},
		{[]string{"profile", "set", "u1"}, "either fields or --clear"},
		{[]string{"profile", "set", "u1", "--country", "NL", "--clear"}, "either fields or --clear"},
		{[]string{"profile", "set", "u1", "--time-zone", "Europe/Atlantis"}, "invalid time_zone"},
		{[]string{"profile", "set", "u1", "--country", "nl"}, "invalid country"},
		{[]string{"profile", "set", "u1", "--number", "4294967296"}, "--number"},
		{[]string{"profile", "set", "u1", "--last-activity", "yesterday"}, "--last-activity"},
		{[]string{"prefs", "set", "u1", "--opt-out-type", strings.Repeat("x", 65)}, "opt_out_types"},
	} {
		if exit, _, stderr := f.run("", tt.args...); exit != exitUsage || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%v: exit status %d, %q, want 2 and %q", tt.args, exit, stderr, tt.stderr)
		}
	}
}
