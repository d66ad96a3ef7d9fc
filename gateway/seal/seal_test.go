package seal

import (
	"bytes"
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
