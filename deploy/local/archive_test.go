//go:build unix

package local

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An archive is used where it is, by the Java that it was made with.
func TestArchived(t *testing.T) {
	dir := t.TempDir()
	jars := filepath.Join(dir, "servers", "kafka-0")
	java, other := filepath.Join(dir, "java"), filepath.Join(dir, "java-of-another-build")
	for path, content := range map[string]string{java: "a", other: "ab"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(why, java string, want ...string) {
		t.Helper()
		if got, err := archived(java, jars); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", why, got, err, want)
		}
	}
	want("none is made", java)
	path, err := archive(java, jars)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want("it is made", java, "-XX:SharedArchiveFile="+path)
	want("it is another Java's", other)
	if _, err := archived(filepath.Join(dir, "no-java"), jars); err == nil {
		t.Error("no Java, and no error")
	}
}
