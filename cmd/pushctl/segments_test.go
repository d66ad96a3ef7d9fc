package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/segments"
)

// desk is a directory with lists of users, and the commands run there.
type desk struct {
	t   *testing.T
	dir string
}

func newDesk(t *testing.T) *desk {
	d := &desk{t, t.TempDir()}
	d.list("new.txt", "1\n2\n3\n")
	d.list("active.csv", "id,user_number\na,10\nb,11\n")
	return d
}

func (d *desk) path(name string) string { return filepath.Join(d.dir, name) }

func (d *desk) list(name, text string) string {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return d.path(name)
}

// run runs a command of segments; @name in its arguments is a file on the desk.
func (d *desk) run(args ...string) (exit int, stdout, stderr string) {
	d.t.Helper()
	return d.runFrom(d.t.Context(), strings.NewReader(""), args...)
}

func (d *desk) runFrom(ctx context.Context, stdin io.Reader, args ...string) (exit int, stdout, stderr string) {
	d.t.Helper()
	words := []string{"segments"}
	for _, a := range args {
		words = append(words, strings.ReplaceAll(a, "@", d.dir+"/"))
	}
	var out, errs bytes.Buffer
	exit = run(ctx, words, stdin, &out, &errs)
	return exit, out.String(), strings.ReplaceAll(errs.String(), d.dir+"/", "@")
}

// done runs a command that must succeed.
func (d *desk) done(args ...string) string {
	d.t.Helper()
	exit, stdout, stderr := d.run(args...)
	if exit != exitDone || stderr != "" {
		d.t.Fatalf("%v: exit status %d, %s %s", args, exit, stdout, stderr)
	}
	return stdout
}

// build builds @users.seg of a version.
func (d *desk) build(version int) {
	d.t.Helper()
	d.done("build", "@users.seg", "lifecycle/new=@new.txt", "lifecycle/active=@active.csv", "--column", "user_number", "--version", fmt.Sprint(version))
}

func TestSegmentsTour(t *testing.T) {
	d := newDesk(t)
	var built buildAnswer
	if err := json.Unmarshal([]byte(d.done("build", "@users.seg", "lifecycle/new=@new.txt", "lifecycle/active=@active.csv", "lifecycle/new=@new.txt", "--column", "user_number", "--version", "7", "-o", "json")), &built); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(d.path("users.seg"))
	if err != nil || built.Version != 7 || built.Bytes != info.Size() || len(built.Segments) != 2 || built.Segments[0] != (builtSegment{"lifecycle", "new", 6, 3, 22}) {
		t.Errorf("%+v, %v", built, err)
	}
	for _, tt := range []struct {
		args []string
		want string // a part
	}{
		{[]string{"inspect", "@users.seg"}, "version 7, built "},
		{[]string{"inspect", "@users.seg"}, "lifecycle  yes        record   new      3      22"},
		{[]string{"inspect", "@users.seg"}, "whole and valid"},
		{[]string{"inspect", "@users.seg", "-o", "json"}, `"checksum": "` + built.Checksum},
		{[]string{"list", "@users.seg"}, "lifecycle  yes        record   active   2      20"},
		{[]string{"lookup", "@users.seg", "3", "11", "12"}, "3     lifecycle  new\n11    lifecycle  active\n12    lifecycle  -\n"},
		{[]string{"enumerate", "@users.seg", "lifecycle/active", "lifecycle/new"}, "1\n2\n3\n10\n11\n"},
		{[]string{"enumerate", "@users.seg", "lifecycle/active", "lifecycle/new", "--after", "1", "--limit", "3"}, "2\n3\n10\n"},
		{[]string{"enumerate", "@users.seg", "lifecycle/active", "lifecycle/new", "--after", "1", "--count"}, "4\n"},
		{[]string{"enumerate", "@users.seg", "lifecycle/active", "lifecycle/new", "--limit", "3", "--count", "-o", "json"}, "{\n  \"users\": 3\n}\n"},
		{[]string{"enumerate", "@users.seg", "lifecycle/new", "-o", "json"}, "[1,2,3]\n"},
		{[]string{"enumerate", "@users.seg", "lifecycle/new", "--and", "lifecycle/active", "-o", "json"}, "[]\n"},
		{[]string{"enumerate", "@users.seg", "lifecycle/new", "--after", "4294967295", "-o", "json"}, "[]\n"},
		{[]string{"enumerate", "@users.seg", "lifecycle/new", "lifecycle/active", "--not", "lifecycle/active", "--and", "lifecycle/new", "-o", "json"}, "[1,2,3]\n"},
		{[]string{"diff", "@users.seg", "@users.seg"}, "the same users in the same segments"},
	} {
		if stdout := d.done(tt.args...); !strings.Contains(stdout, tt.want) || tt.args[0] == "enumerate" && stdout != tt.want {
			t.Errorf("%v: printed\n%s\nwant\n%s", tt.args, stdout, tt.want)
		}
	}
	if stdout := d.done("enumerate", "@users.seg", "lifecycle/new", "--and", "lifecycle/active"); stdout != "" {
		t.Errorf("nobody: printed %q", stdout)
	}
}

// Ids that are hashed are looked up by id, and cannot be enumerated.
func TestSegmentsOfHashes(t *testing.T) {
	d := newDesk(t)
	d.list("shoes.txt", "ann\nu42\n")
	d.list("hats.txt", "ann\n")
	d.done("build", "@i.seg", "interests/shoes=@shoes.txt", "interests/hats=@hats.txt", "lifecycle/new=@new.txt", "--overlapping", "interests", "--numbers", "interests=hash", "--version", "1")
	want := "USER  GROUP      SEGMENTS\nann   interests  shoes,hats\nu42   interests  shoes\neve   interests  -\n1     lifecycle  new\n"
	if stdout := d.done("lookup", "@i.seg", "1", "--id", "ann,u42,eve"); stdout != want {
		t.Errorf("printed\n%s\nwant\n%s", stdout, want)
	}
	if exit, _, stderr := d.run("enumerate", "@i.seg", "interests/hats"); exit != exitUsage || !strings.Contains(stderr, "hashes, which say nothing of the ids") {
		t.Errorf("exit status %d, %s", exit, stderr)
	}
	d.done("build", "@h.seg", "interests/hats=@hats.txt", "--overlapping", "interests", "--numbers", "hash")
	if stdout := d.done("lookup", "@h.seg", "1"); !strings.Contains(stdout, "none of the file's groups can be asked") {
		t.Errorf("printed %s", stdout)
	}
	d.done("build", "@n.seg", "a/x=@new.txt", "b/x=@new.txt", "--numbers", "id,b=record", "--version", "1")
	if exit, _, stderr := d.run("enumerate", "@n.seg", "a/x", "--not", "b/x"); exit != exitUsage || !strings.Contains(stderr, "their numbers mean different users") {
		t.Errorf("exit status %d, %s", exit, stderr)
	}
}

func TestSegmentsComplaints(t *testing.T) {
	d := newDesk(t)
	d.build(5)
	whole, err := os.ReadFile(d.path("users.seg"))
	if err != nil {
		t.Fatal(err)
	}
	d.list("cut.seg", string(whole[:len(whole)-1]))
	d.list("head.seg", string(whole[:60]))
	d.list("damaged.seg", string(whole[:len(whole)-1])+"!")
	d.list("both.txt", "5\n3\n2\n")
	d.list("wide.txt", "1\n4294967296\n")
	d.list("secret", "aws_access_key_id=SECRET\n")
	for _, tt := range []struct {
		args   []string
		exit   int
		stderr string // a part
	}{
		{[]string{"build", "@x.seg"}, exitUsage, "2 arg"},
		{[]string{"build", "lifecycle/new=@new.txt", "@x.seg"}, exitUsage, "the first argument is OUT"},
		{[]string{"build", "s3://b/x", "a/b=@new.txt"}, exitUsage, "`pushctl segments push` writes to s3"},
		{[]string{"build", "@x.seg", "@new.txt"}, exitUsage, "want GROUP/SEGMENT=LIST"},
		{[]string{"build", "@x.seg", "new=@new.txt"}, exitUsage, "want GROUP/SEGMENT, such as"},
		{[]string{"build", "@x.seg", "a/b/c=@new.txt"}, exitUsage, "want GROUP/SEGMENT, such as"},
		{[]string{"build", "@x.seg", "a/b=@nowhere.txt"}, exitUsage, "@nowhere.txt: no such file"},
		{[]string{"build", "@x.seg", "a/b=-", "a/c=-"}, exitUsage, "only one list can be standard input"},
		{[]string{"build", "@x.seg", "a/b=@new.txt", "--format", "xml"}, exitUsage, "want text or csv"},
		{[]string{"build", "@x.seg", "A/b=@new.txt"}, exitUsage, "a name has 1 to 64"},
		{[]string{"build", "@x.seg", "a/B=@new.txt"}, exitUsage, "a name has 1 to 64"},
		{[]string{"build", "@x.seg", "a/b=@new.txt", "--numbers", "rank"}, exitUsage, "want record, id or hash"},
		{[]string{"build", "@x.seg", "a/b=@new.txt", "--numbers", "b=id"}, exitUsage, `no list is of group "b"`},
		{[]string{"build", "@x.seg", "a/b=@new.txt", "--overlapping", "b"}, exitUsage, `no list is of group "b"`},
		{[]string{"build", "@x.seg", "a/b=@new.txt", "--numbers", "hash"}, exitUsage, "of 270 million ids, 16 million"},
		{[]string{"build", "@new.txt", "a/b=@both.txt"}, exitUsage, "@new.txt exists, and is no segment file"},
		{[]string{"build", "@x.seg", "a/b=@active.csv"}, exitFailed, "@active.csv: line 1: 2 columns: say which one"},
		{[]string{"build", "@x.seg", "a/b=@wide.txt"}, exitFailed, "@wide.txt: line 2: a number over 4294967295"},
		{[]string{"build", "@x.seg", "a/b=@new.txt", "a/c=@both.txt"}, exitFailed, "group a is exclusive, and 2 users are in both b and c, user number 2 is the first; @x.seg was not written"},
		{[]string{"build", "@users.seg", "a/b=@new.txt", "--version", "5"}, exitFailed, "@users.seg has version 5"},
		{[]string{"inspect", "@nowhere.seg"}, exitUsage, "no such file"},
		{[]string{"inspect", "@new.txt"}, exitFailed, "not a segment file"},
		{[]string{"inspect", "@cut.seg"}, exitFailed, "segment lifecycle/active: truncated: 19 of its 20 bytes are there"},
		{[]string{"inspect", "@damaged.seg"}, exitFailed, "does not have its checksum"},
		{[]string{"list", "@head.seg"}, exitFailed, "truncated: it ends within the manifest"},
		{[]string{"list", "@cut.seg"}, exitFailed, "workers refuse it"},
		{[]string{"lookup", "@users.seg"}, exitUsage, "whom to look up"},
		{[]string{"lookup", "@users.seg", "u42"}, exitUsage, "NUMBER 1: not a decimal number"},
		{[]string{"enumerate", "@users.seg", "a/new"}, exitUsage, `no group "a" in the file`},
		{[]string{"enumerate", "@users.seg", "lifecycle/old"}, exitUsage, `no segment "old" in group lifecycle`},
		{[]string{"enumerate", "@users.seg", "lifecycle/new", "--not", "old"}, exitUsage, "want GROUP/SEGMENT"},
		{[]string{"enumerate", "@users.seg", "lifecycle/new", "--after", "4294967296"}, exitUsage, "--after: want 0 to 4294967295"},
		{[]string{"diff", "@users.seg", "@cut.seg"}, exitFailed, "truncated"},
		{[]string{"push", "@cut.seg", "@live.seg"}, exitFailed, "truncated"},
		{[]string{"push", "@users.seg", "@new.txt"}, exitFailed, "it is not replaced"},
		{[]string{"push", "@users.seg", "https://cdn.example.com/users.seg"}, exitUsage, "push writes to s3://bucket/key or a path"},
		{[]string{"push", "@users.seg", "s3://bucket"}, exitUsage, "s3://bucket/key"},
		{[]string{"push", "@users.seg", "s3://bucket/key", "--s3-credentials", "@nowhere"}, exitUsage, "--s3-credentials: "},
		{[]string{"push", "@users.seg", "s3://bucket/key", "--s3-credentials", "@secret"}, exitUsage, "aws_secret_access_key is missing"},
		{[]string{"push", "@users.seg", "s3://bucket/key", "--s3-endpoint", "minio"}, exitUsage, "the endpoint is not"},
		{[]string{"inspect", "ftp://x/users.seg"}, exitUsage, "not an http or https URL"},
		{[]string{"inspect", "http://cdn.example.com/x", "--token-file", "@secret"}, exitUsage, "https only"},
		{[]string{"inspect", "https://cdn.example.com/x", "--token-file", "@nowhere"}, exitUsage, "--token-file: "},
		{[]string{"inspect", "https://cdn.example.com/x", "--ca-file", "@new.txt"}, exitUsage, "--ca-file: "},
	} {
		exit, stdout, stderr := d.run(tt.args...)
		if exit != tt.exit || !strings.Contains(stderr, tt.stderr) || strings.Contains(stderr, "SECRET") {
			t.Errorf("%v: exit status %d, want %d: %s%s\nwant %q", tt.args, exit, tt.exit, stdout, stderr, tt.stderr)
		}
	}
	if _, err := os.Stat(d.path("x.seg")); !os.IsNotExist(err) {
		t.Errorf("a failed build left a file: %v", err)
	}
	if now, err := os.ReadFile(d.path("users.seg")); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("users.seg was changed: %v", err)
	}
}

// A version follows that of the file which is replaced, whatever the clock
// says.
func TestBuildMakesGreaterVersions(t *testing.T) {
	d := newDesk(t)
	d.build(99991231235959)
	var built buildAnswer
	if err := json.Unmarshal([]byte(d.done("build", "@users.seg", "a/b=@new.txt", "-o", "json")), &built); err != nil || built.Version != 99991231235960 {
		t.Errorf("version %d, %v", built.Version, err)
	}
	broken, err := os.ReadFile(d.path("users.seg"))
	if err != nil {
		t.Fatal(err)
	}
	d.list("users.seg", string(broken[:30])) // it can be replaced
	d.build(3)
}

func TestBuildReadsStandardInput(t *testing.T) {
	d := newDesk(t)
	exit, stdout, stderr := d.runFrom(t.Context(), strings.NewReader("n\n7\n"), "build", "@x.seg", "a/b=-", "--format", "csv")
	if exit != exitDone || d.done("enumerate", "@x.seg", "a/b") != "7\n" {
		t.Errorf("exit status %d, %s %s", exit, stdout, stderr)
	}
}

// Ctrl-C in the middle of a list: the file that was there stays.
func TestBuildIsInterrupted(t *testing.T) {
	d := newDesk(t)
	d.build(1)
	before, err := os.ReadFile(d.path("users.seg"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	many := strings.Repeat("1\n", 50_000)
	stdin := &interrupting{strings.NewReader(many), strings.NewReader(many), interrupt}
	exit, stdout, stderr := d.runFrom(ctx, stdin, "build", "@users.seg", "a/b=-", "--version", "2")
	if exit != exitInterrupted || stdout != "" || stderr != "pushctl: interrupted\n" {
		t.Errorf("exit status %d, %s %s", exit, stdout, stderr)
	}
	if after, err := os.ReadFile(d.path("users.seg")); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file was changed: %v", err)
	}
	if entries, err := os.ReadDir(d.dir); err != nil || len(entries) != 3 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// interruptedWriter calls f with its first bytes.
type interruptedWriter struct {
	bytes.Buffer
	f func()
}

func (w *interruptedWriter) Write(p []byte) (int, error) {
	w.f()
	return w.Buffer.Write(p)
}

// Ctrl-C in the middle of an enumeration: the error says where to go on, and
// what follows from there is the rest.
func TestEnumerateIsInterrupted(t *testing.T) {
	d := newDesk(t)
	var all strings.Builder
	for n := range 300_000 {
		_, _ = fmt.Fprintln(&all, 3*n)
	}
	d.list("all.txt", all.String())
	d.done("build", "@x.seg", "a/b=@all.txt", "--version", "1")
	ctx, interrupt := context.WithCancel(t.Context())
	out := &interruptedWriter{f: interrupt}
	var errs bytes.Buffer
	exit := run(ctx, []string{"segments", "enumerate", d.path("x.seg"), "a/b"}, strings.NewReader(""), out, &errs)
	var n, last, after int
	if _, err := fmt.Sscanf(errs.String(), "pushctl: interrupted (%d numbers were printed, the last one is %d: continue with --after %d)", &n, &last, &after); exit != exitInterrupted || err != nil || after != last {
		t.Fatalf("exit status %d, %s: %v", exit, errs.String(), err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != n || lines[n-1] != fmt.Sprint(last) || n >= 300_000 {
		t.Errorf("%d lines, the last one %s; told of %d, %d", len(lines), lines[len(lines)-1], n, last)
	}
	rest := d.done("enumerate", "@x.seg", "a/b", "--after", fmt.Sprint(last))
	if out.String()+"\n"+rest != all.String() {
		t.Errorf("%d and %d bytes are not all %d", out.Len(), len(rest), all.Len())
	}
}

func TestSegmentsDiff(t *testing.T) {
	d := newDesk(t)
	d.build(1)
	d.done("push", "@users.seg", "@old.seg")
	d.list("new.txt", "3\n4\n")
	d.list("active.csv", "id,user_number\na,10\nc,1\n")
	d.build(2)
	want := `GROUP      SEGMENT  BEFORE  AFTER  CAME  WENT
lifecycle  new      3       2      1     2
lifecycle  active   2       2      1     1
version 1, then version 2
lifecycle: 1 users from new to active
lifecycle: 1 users from new to no segment
lifecycle: 1 users from active to no segment
lifecycle: 1 users from no segment to new
`
	if exit, stdout, stderr := d.run("diff", "@old.seg", "@users.seg"); exit != exitFailed || stdout != want || stderr != "" {
		t.Errorf("exit status %d, printed\n%s%s\nwant\n%s", exit, stdout, stderr, want)
	}
}

// bucket is S3-compatible storage that takes any signature.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte // guarded by mu
	spoil   bool              // guarded by mu; the first byte of what is put is changed
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Method == http.MethodPut {
		body, _ := io.ReadAll(r.Body)
		if b.spoil {
			body[0] ^= 1
		}
		b.objects[r.URL.Path] = body
		return
	}
	object, ok := b.objects[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	http.ServeContent(w, r, "", time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), bytes.NewReader(object))
}

func TestSegmentsPush(t *testing.T) {
	b := &bucket{objects: map[string][]byte{}}
	server := httptest.NewServer(b)
	defer server.Close()
	d := newDesk(t)
	credentials := d.list("credentials", "[default]\naws_access_key_id = AK\naws_secret_access_key = SECRET\n")
	for _, destination := range []string{"@live.seg", "s3://audience/live.seg"} {
		push := func(more ...string) (int, string, string) {
			args := append([]string{"push", "@users.seg", destination}, more...)
			if destination[0] != '@' {
				args = append(args, "--s3-endpoint", server.URL, "--s3-credentials", credentials)
			}
			return d.run(args...)
		}
		step := func(why string, exit int, text string, more ...string) {
			t.Helper()
			if got, stdout, stderr := push(more...); got != exit || !strings.Contains(stdout+stderr, text) {
				t.Errorf("%s, %s: exit status %d, %s%s\nwant %q", destination, why, got, stdout, stderr, text)
			}
		}
		_ = os.Remove(d.path("users.seg"))
		d.list("new.txt", "1\n")
		d.build(5)
		step("the first one", exitDone, "version 5 published, ")
		step("again", exitDone, "has version 5 already, with the same contents")
		_ = os.Remove(d.path("users.seg"))
		d.list("new.txt", "1\n2\n")
		d.build(5)
		step("other contents", exitFailed, "has version 5 with other contents")
		d.build(6)
		step("a newer one", exitDone, "version 6 published in place of version 5")
		_ = os.Remove(d.path("users.seg"))
		d.build(4)
		step("an older one", exitFailed, "has version 6, and the file is older, version 4: --as-new puts it back")
		step("an older one as a new one", exitDone, "published in place of version 6", "--as-new")
		if m := readManifest(t, d.path("users.seg")); m.Version != 4 {
			t.Errorf("the file itself has version %d now", m.Version)
		}
		source := []string{"inspect", destination}
		if destination[0] != '@' {
			source = append(source, "--s3-endpoint", server.URL)
			if exit, stdout, stderr := d.run(source...); exit != exitDone || !strings.Contains(stdout, "whole and valid") {
				t.Errorf("inspect: exit status %d, %s%s", exit, stdout, stderr)
			}
		}
	}
	b.mu.Lock()
	b.spoil = true
	b.mu.Unlock()
	exit, stdout, stderr := d.run("push", "@users.seg", "s3://audience/spoilt.seg", "--s3-endpoint", server.URL, "--s3-credentials", credentials)
	if exit != exitFailed || !strings.Contains(stderr, "not a segment file") {
		t.Errorf("a storage that spoils what it takes: exit status %d, %s%s", exit, stdout, stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "pushctl-*.seg")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func readManifest(t *testing.T, path string) *segments.Manifest {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, _, err := segments.ReadManifest(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A URL with a token from a file.
func TestSegmentsFromURL(t *testing.T) {
	d := newDesk(t)
	d.build(5)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer T0KEN" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.ServeFile(w, r, d.path("users.seg"))
	}))
	defer server.Close()
	d.list("token", "T0KEN\n")
	if stdout := d.done("list", server.URL+"/users.seg", "--token-file", "@token", "-o", "json"); !strings.Contains(stdout, `"version": 5`) {
		t.Errorf("printed %s", stdout)
	}
	if exit, _, stderr := d.run("list", server.URL+"/users.seg"); exit != exitFailed || !strings.Contains(stderr, "401 Unauthorized") {
		t.Errorf("without the token: exit status %d, %s", exit, stderr)
	}
}
