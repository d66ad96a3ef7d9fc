package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// An unreadable record is listed until a readable one follows it. The list
// contains neither the record's content nor other users.
func TestUsersInQuarantine(t *testing.T) {
	f := startFleet(t, true)
	f.startRegistry()
	if out := f.ok("users", "quarantine", "ls"); !strings.Contains(out, "nobody") {
		t.Errorf("of nobody: %q", out)
	}
	f.ok("prefs", "set", "u1", "--opt-out-type", "promo")
	w, err := kafka.NewWriter(kafka.Options{Brokers: f.kafka.Addrs()}, kafka.WriterOptions{Topic: kafka.UsersTopic, PartitionKey: users.PartitionKey})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Append(t.Context(), []kafka.Record{{Key: []byte(record.PreferencesKey("u1")), Value: []byte(`{"v":9,"secret":1}`)}}); err != nil {
		t.Fatal(err)
	}
	list := func(n int) (rows []quarantineRow) {
		t.Helper()
		for {
			exit, out, errs := f.run("", "users", "quarantine", "ls", "-o", "json")
			if err := json.Unmarshal([]byte(out), &rows); err != nil || strings.Contains(out, "secret") {
				t.Fatalf("exit status %d: %s, %s", exit, out, errs)
			}
			if len(rows) == n && (n == 0 || rows[0].Place != "") {
				if want := min(n, exitFailed); exit != want {
					t.Errorf("exit status %d, want %d", exit, want)
				}
				return rows
			}
			if time.Now().After(f.deadline) {
				t.Fatalf("the list is %+v, want %d rows", rows, n)
			}
		}
	}
	row := list(1)[0]
	if row.UserID != "u1" || row.Part != "preferences" || row.Reason != record.UnknownVersion || !row.Stands || !strings.HasPrefix(row.Place, "push.users/") {
		t.Errorf("%+v", row)
	}
	if out := f.ok("prefs", "get", "u1"); !strings.Contains(out, "promo") {
		t.Errorf("what was there does not stand: %q", out)
	}
	f.ok("prefs", "set", "u1", "--clear")
	list(0)
}
