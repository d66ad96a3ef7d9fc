package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

const (
	first  = "pKQ2rjX0Hn4m1yTgV8s6bZc3dW5eFa7L"
	second = "Zx9vB2nM5kQ8wE1rT4yU7iO0pA3sD6fG"
)

func keys(t *testing.T, lines ...string) *Keys {
	t.Helper()
	k, err := Parse(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSeal(t *testing.T) {
	k := keys(t, first)
	content := []byte(`{"title":"Your result","body":"negative"}`)
	sealed := k.Seal(content, "clinic", "results", "m1")
	if again := k.Seal(content, "clinic", "results", "m1"); bytes.Equal(again, sealed) {
		t.Error("sealed twice alike: the nonce is the same")
	}
	if !Sealed(sealed) || Sealed(content) || !json.Valid(sealed) || bytes.Contains(sealed, []byte("result")) {
		t.Errorf("%s", sealed)
	}
	for _, c := range []struct {
		name string
		keys *Keys
		of   []string
		want error
	}{
		{"as it was sealed", k, []string{"clinic", "results", "m1"}, nil},
		{"by the former key", keys(t, second, first), []string{"clinic", "results", "m1"}, nil},
		{"another message", k, []string{"clinic", "results", "m2"}, ErrBroken},
		{"another topic", k, []string{"clinic", "result", "sm1"}, ErrBroken},
		{"words divided otherwise", k, []string{"clinicresults", "m1"}, ErrBroken},
		{"another key", keys(t, second), []string{"clinic", "results", "m1"}, ErrNoKey},
	} {
		opened, err := c.keys.Open(sealed, c.of...)
		if !errors.Is(err, c.want) || err == nil && !bytes.Equal(opened, content) {
			t.Errorf("%s: %s, %v, want %v", c.name, opened, err, c.want)
		}
	}
	// The former key opens only: what is sealed now is not for it.
	if _, err := k.Open(keys(t, second, first).Seal(content)); !errors.Is(err, ErrNoKey) {
		t.Errorf("the first line does not seal: %v", err)
	}
}

// Nothing that was changed is opened, whichever character it was, and nothing makes it panic.
func TestOpenHostile(t *testing.T) {
	k := keys(t, first)
	sealed := k.Seal([]byte(`{"body":"x"}`), "a")
	for i := range sealed {
		for _, to := range []byte{'A', '"', '\n', 0xff} {
			changed := slices.Clone(sealed)
			if changed[i] == to {
				continue
			}
			changed[i] = to
			if opened, err := k.Open(changed, "a"); err == nil {
				t.Fatalf("character %d as %q: opened as %s", i, to, opened)
			}
		}
	}
	for _, text := range []string{"", "{", begins, begins + ends, begins + "AQ" + ends, `{"sealed":null}`, begins + strings.Repeat("A", 100) + ends} {
		if _, err := k.Open([]byte(text)); err == nil {
			t.Errorf("opened %q", text)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, secret, want string }{
		{"two keys", first + "\n\n" + second + "\n", ""},
		{"nothing", "\n \n", "has no key"},
		{"a short line", first + "\n" + second[:31], "line 2 has 31 characters"},
		{"a comment", "# the keys of confidential topics, rotated by ops\n" + first, "line 1 is no key"},
		{"a comment without blanks", first + "\n#" + second, "line 2 is no key"},
		{"a certificate", first + "\n-----BEGIN CERTIFICATE-----------------", "line 2 is no key"},
		{"a byte order mark", "\ufeff" + first, "line 1 is no key"},
		{"a blank that is no ASCII", first + "\n\u00a0" + second, "line 2 is no key"},
		{"the same twice", first + "\n" + first, "line 2 is there twice"},
	} {
		_, err := Parse(c.secret)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), first[:8])) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What stands for a sum depends on the key; with a former key beside it, the sum that was
// kept is found.
func TestSums(t *testing.T) {
	kept := keys(t, first).Sums(7)[0]
	if again := keys(t, first).Sums(7)[0]; again != kept {
		t.Error("not the same twice")
	}
	if keys(t, first).Sums(7, "m1")[0] == kept || keys(t, first).Sums(8)[0] == kept || keys(t, second).Sums(7)[0] == kept || kept == 7 {
		t.Error("the same for another sum, another message or another key")
	}
	if all := keys(t, second, first).Sums(7); len(all) != 2 || all[0] == kept || all[1] != kept {
		t.Error("a former key does not find what was kept")
	}
}

// Each byte of a nonce is drawn: of 64 seals no two are the same, and no byte is always the same.
func TestNonces(t *testing.T) {
	k, err := Parse(strings.Repeat("k", MinKey))
	if err != nil {
		t.Fatal(err)
	}
	var seen [12]map[byte]bool
	for range 64 {
		sealed := k.Seal([]byte("x"))
		b, err := base64.RawURLEncoding.DecodeString(string(sealed[len(begins) : len(sealed)-len(ends)]))
		if err != nil {
			t.Fatal(err)
		}
		for i := range seen {
			if seen[i] == nil {
				seen[i] = map[byte]bool{}
			}
			seen[i][b[1+nameSize+i]] = true
		}
	}
	for i, values := range seen {
		if len(values) < 32 { // of 64 draws of 256 some 57 differ
			t.Errorf("byte %d has %d values", i, len(values))
		}
	}
}

// What is cut off anywhere is broken, and no more.
func TestCutOff(t *testing.T) {
	k, err := Parse(strings.Repeat("k", MinKey))
	if err != nil {
		t.Fatal(err)
	}
	sealed := k.Seal([]byte("x"))
	for n := len(begins); n < len(sealed)-len(ends); n++ {
		if _, err := k.Open(append(slices.Clone(sealed[:n]), ends...)); !errors.Is(err, ErrBroken) {
			t.Errorf("%d of %d bytes: %v", n, len(sealed), err)
		}
	}
	for _, other := range []string{string(sealed[len(begins):]), string(sealed[:len(sealed)-len(ends)])} {
		if _, err := k.Open([]byte(other)); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", other, err)
		}
	}
}
