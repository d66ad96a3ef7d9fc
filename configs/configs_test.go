package configs

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func shipped(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("worker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	example   = regexp.MustCompile(`(?m)^# Example:\n((?:#.*\n)+)`)
	noElement = regexp.MustCompile(`(?m)^limits:.*\n  rules: \[\].*\n  senders: \[\].*\n  state_version:.*\n  devices:.*\n(?:    .*\n)+|^(?:apps|countries): \[\].*\n|^  lanes: \[\].*\n|^    senders: \[\].*\n`)
)

// everything is the shipped file with its examples in place of the empty
// lists, so that every key there is stands in it.
func everything(t *testing.T) string {
	text := noElement.ReplaceAllString(shipped(t), "")
	text = example.ReplaceAllStringFunc(text, func(block string) string {
		_, block, _ = strings.Cut(block, "\n")
		return regexp.MustCompile(`(?m)^#`).ReplaceAllString(block, "")
	})
	text = strings.Replace(text, "promotional_types: []", "promotional_types: [promotion]", 1)
	text = strings.Replace(text, "- slice: 10s", "- since: 0001-01-01T00:00:00Z # when it starts to count; none for the first\n      slice: 10s", 1)
	return text
}

// problemsOf gives the problems that a text has, and fails for other errors.
func problemsOf(t *testing.T, text string, env ...string) Problems {
	t.Helper()
	_, err := Parse([]byte(text), env)
	if err == nil {
		return nil
	}
	var ps Problems
	if !errors.As(err, &ps) {
		t.Fatalf("got %T, want Problems: %v", err, err)
	}
	return ps
}

func TestShippedFileIsDefault(t *testing.T) {
	t.Parallel()
	c, err := Load("worker.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := Default(); !reflect.DeepEqual(c, want) {
		t.Errorf("worker.yaml gives\n%+v\nDefault gives\n%+v", c, want)
	}
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
}

func TestShippedExamplesWork(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(everything(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	news := []string{"promotion", "news"}
	rules := []Rule{
		{Name: "all-an-hour", Per: "user", Algorithm: "sliding_counter", Max: 15, Window: time.Hour, Over: "defer"},
		{Name: "all-a-day", Per: "user", Algorithm: "fixed_window", Max: 50, Calendar: "day"},
		{Name: "promotions-a-day", Per: "user_type", Algorithm: "event_set", Max: 5, Window: 24 * time.Hour, Types: news, Channels: []string{"push"},
			Lanes: []string{"promotional"}, Apps: []string{"shop"}, Priorities: []string{"low", "bulk"}, PerApp: true, Personal: true},
		{Name: "device-a-day", Per: "device_type", Algorithm: "event_set", Max: 3, Calendar: "day", Distinct: news},
		{Name: "lifecycle-a-day", Per: "segment", Algorithm: "sliding_log", Max: 1, Window: 24 * time.Hour, Lanes: []string{"promotional"},
			Segments: []string{"lifecycle/new", "lifecycle/active"}, SegmentMax: []SegmentMax{{"lifecycle/active", 3}}},
		{Name: "lifecycle-a-week", Per: "segment", Algorithm: "sliding_log", Max: 3, Window: 7 * 24 * time.Hour, Lanes: []string{"promotional"},
			Segments: []string{"lifecycle/new", "lifecycle/active"}, SegmentMax: []SegmentMax{{"lifecycle/active", 10}}},
	}
	if !reflect.DeepEqual(c.Limits.Rules, rules) {
		t.Errorf("rules are %+v", c.Limits.Rules)
	}
	countries := []Country{{Country: "DE", Zone: "Europe/Berlin", Hours: []Hours{{From: "20:00", To: "09:00",
		Days: []string{"mon", "tue", "wed", "thu", "fri"}, Types: []string{"promotion"}}}}}
	if !reflect.DeepEqual(c.Countries, countries) {
		t.Errorf("countries are %+v", c.Countries)
	}
	senders := []SenderRule{{Name: "sender-an-hour", Algorithm: "token_bucket", Max: 1000, Window: time.Hour, Burst: 1000, Wait: time.Hour,
		Senders: []string{"campaigns"}, Lanes: []string{"promotional"}, Types: []string{"promotion"}, Apps: []string{"shop"}}}
	if !reflect.DeepEqual(c.Limits.Senders, senders) {
		t.Errorf("rules of senders are %+v", c.Limits.Senders)
	}
	if len(c.Apps) != 1 || c.Apps[0].APNS == nil || c.Apps[0].FCM == nil {
		t.Fatalf("apps are %+v", c.Apps)
	}
	if got := c.Apps[0].APNS.URL("sandbox"); got != "https://api.sandbox.push.apple.com" {
		t.Errorf("sandbox is at %s", got)
	}
	// What the examples spell out are the defaults, where there are some.
	if want := (APNS{}).defaults(); c.Apps[0].APNS.ProductionURL != want.ProductionURL ||
		!reflect.DeepEqual(c.Apps[0].APNS.Environments, want.Environments) {
		t.Error("the example does not show the defaults")
	}
}

// Every key of Config stands in the shipped file with a comment, and the file
// has no other.
func TestShippedFileDocumentsEveryKey(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	walk(t, everything(t), func(path string, parent *yaml.Node, i int) {
		key, value := parent.Content[i], parent.Content[i+1]
		comment := key.HeadComment + key.LineComment + value.HeadComment + value.LineComment
		general := indexes.ReplaceAllString(path, "[]")
		documented[general] = documented[general] || strings.TrimLeft(comment, "# ") != ""
	})
	for _, path := range allPaths(reflect.TypeFor[Config](), "") {
		if strings.Count(path, ".") == 0 && !strings.HasSuffix(path, "]") && path != "lanes" && path != "apps" {
			continue // a section's own comment is a matter of taste
		}
		ok, there := documented[path]
		switch {
		case !there:
			t.Errorf("%s is not in worker.yaml", path)
		case !ok:
			t.Errorf("%s has no comment in worker.yaml", path)
		}
	}
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// allPaths are the paths of all keys, with [] for any index.
func allPaths(t reflect.Type, path string) (paths []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := join(path, f.Tag.Get("yaml"))
		paths = append(paths, at)
		inner := f.Type
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			inner, at = inner.Elem(), at+"[]"
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() {
			paths = append(paths, allPaths(inner, at)...)
		}
	}
	return paths
}

func TestPrintReadsBack(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"defaults": shipped(t), "everything": everything(t)} {
		c, err := Parse([]byte(text), []string{"PUSHFLEET_KAFKA_SASL_USERNAME=123", "PUSHFLEET_KAFKA_SASL_MECHANISM=PLAIN",
			"PUSHFLEET_KAFKA_SASL_PASSWORD_FILE=/p: #x", "PUSHFLEET_KAFKA_TLS_ENABLED=true"})
		if err != nil {
			t.Fatal(name, err)
		}
		var out bytes.Buffer
		if err := Print(&out, c); err != nil {
			t.Fatal(name, err)
		}
		again, err := Parse(out.Bytes(), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		if !reflect.DeepEqual(c, again) {
			t.Errorf("%s: printed as\n%s", name, out.String())
		}
	}
}

func TestMemoryBoundAddsUp(t *testing.T) {
	t.Parallel()
	c := Default()
	m := c.MemoryBound()
	// 6 clients, 4 windows of 4 batches x 8 MiB and an eighth, and one poll of
	// 64 MiB and 3 brokers.
	if want := Bytes(6 * (4*4*8 + 4*4 + 64 + 3) << 20); m.Records != want {
		t.Errorf("records %s, want %s", m.Records, want)
	}
	if want := Bytes(6 * 200_000 * 1536); m.Items != want {
		t.Errorf("items %s, want %s", m.Items, want)
	}
	if want := Bytes(6 * (64 + 192 + 3*26) << 20); m.Fetch != want {
		t.Errorf("fetch buffers %s, want %s", m.Fetch, want)
	}
	if m.Devices != 0 {
		t.Errorf("devices %s: they are in Redis", m.Devices)
	}
	c.Limits.Devices.Backend = "cassandra"
	// 6 clients, 4 workers of 10,000 records with 3 devices each; 128 reads.
	logged := c.MemoryBound()
	if want := Bytes(6*40_000*3*(1024+20*112) + 128*512<<10); logged.Devices != want || logged.Total() != m.Total()+want {
		t.Errorf("devices %s of %s, want %s", logged.Devices, logged.Total(), want)
	}
	c.Batch.Workers = 32 // more than may be open
	if want := Bytes(6*200_000*3*(1024+20*112) + 128*512<<10); c.MemoryBound().Devices != want {
		t.Errorf("devices %s, want %s", c.MemoryBound().Devices, want)
	}
	c = Default()
	c.Kafka.Brokers = make([]string, 5)
	if want := Bytes(6 * (64 + 192 + 5*26) << 20); c.MemoryBound().Fetch != want {
		t.Errorf("fetch buffers of 5 brokers %s, want %s", c.MemoryBound().Fetch, want)
	}
	c.Kafka.Brokers = nil
	c.Batch.OpenRecords = 800 // now the records are the tighter bound
	if want := Bytes(6 * (800*152<<10 + 800*19<<10 + 67<<20)); c.MemoryBound().Records != want {
		t.Errorf("records %s, want %s", c.MemoryBound().Records, want)
	}
	if s := m.String(); !strings.Contains(s, " MiB = fetch buffers 2004 + records 1266 + ") {
		t.Errorf("it says %q", s)
	}
}

func TestDocumentedExampleWorks(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(doc)
	if m == nil {
		t.Fatal("docs/configuration.md has no example")
	}
	c, err := Parse(m[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Apps) != 1 || len(c.Kafka.Brokers) != 2 || len(c.Lanes) != 3 {
		t.Errorf("it gives %+v", c)
	}
}

// Gateways look as far back as the longest journal of a lane.
func TestLongestJournal(t *testing.T) {
	c := Default()
	if c.KeepsJournals() || c.LongestJournal() != 0 {
		t.Error("a journal by default")
	}
	c.Lanes[0].Journal, c.Lanes[1].Journal = 48*time.Hour, 24*time.Hour
	if !c.KeepsJournals() || c.LongestJournal() != 48*time.Hour {
		t.Errorf("%s", c.LongestJournal())
	}
}
