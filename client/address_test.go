package client

import (
	"strings"
	"testing"
)

func TestAddressesAreNotRepeated(t *testing.T) {
	for _, u := range []string{"http://me:s3cret/rest@host", "https://host?key=s3cret", "https://host#s3cret", "http://s3cret@host", "http://me:s3cret\x7f@host", "http://me:s3cret%zz@host"} {
		_, err := New(Options{URL: u, Key: "k"})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", u, err)
		}
	}
}
