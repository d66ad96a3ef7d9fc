package fanout

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

var (
	aMessage = uuid.MustParse("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21")
	accepted = time.UnixMilli(millis(aMessage)).UTC()
)

// aJob is a job for the subscribers of a topic, prepared.
func aJob(t testing.TB, change ...func(*Job)) *Job {
	t.Helper()
	j := &Job{Message: aMessage, Sender: "shop", App: "shop", ServiceType: "promotional", Lane: "promotional", Topic: "push.promotional", Partitions: 6,
		Accepted: accepted, Expires: accepted.Add(24 * time.Hour), To: To{Kind: OfTopic, Name: "news", Layout: 1, Parts: 4}, Campaign: aMessage.String(), Priority: push.High,
		Rest: []byte(`"sender_id":"shop","app":"shop","type":"news","title":"Snow"}`)}
	for _, c := range change {
		c(j)
	}
	if err := j.prepare(); err != nil {
		t.Fatal(err)
	}
	return j
}

// FuzzRecord holds spliced records against what encoding/json would have written, and
// against what workers read.
func FuzzRecord(f *testing.F) {
	for _, user := range []string{"u42", `"`, `\`, `a"b\c`, "\x00\x1f\n\t\x7f", "Дарья", "\u2028\u2029<>&", "\U0001f600", strings.Repeat("\x01", maxUser), `u","app":"bank`, "\xff", ""} {
		f.Add(user, "Snow", uint8(push.High), uint8(0))
		f.Add(user, `"},{"`, uint8(push.Bulk), uint8(push.Critical))
	}
	f.Fuzz(func(t *testing.T, user, title string, of, priority uint8) {
		if !usable(user) || of < uint8(push.Bulk) || of > uint8(push.Critical) || priority > uint8(push.Critical) || len(title) > 1000 {
			t.Skip("no receiver")
		}
		text, err := json.Marshal(title)
		if err != nil {
			t.Fatal(err)
		}
		j := aJob(t, func(j *Job) {
			j.Priority = push.Priority(of)
			j.Rest = append(append([]byte(`"sender_id":"shop","app":"shop","title":`), text...), '}')
		})
		value := j.appendRecord(nil, user, push.Priority(priority), nil)
		if len(value) > j.mostBytes() {
			t.Errorf("%d bytes, at most %d were foretold", len(value), j.mostBytes())
		}
		want := push.Priority(priority)
		if want == 0 || want > j.Priority {
			want = j.Priority
		}
		var m push.Message
		if d := decode.Message(value, &m); d != nil {
			t.Fatalf("a worker cannot read %s: %v", value, d)
		}
		if m.ID != ID(j.Message, user) || m.UserID != user || m.App != "shop" || m.SenderID != "shop" || m.Priority != want || !m.ExpiresAt.Equal(j.Expires) {
			t.Fatalf("a worker reads %+v of %s", m, value)
		}
		var read map[string]string
		if err := json.Unmarshal(value, &read); err != nil {
			t.Fatalf("encoding/json cannot read %s: %v", value, err)
		}
		var written struct{ Title string }
		if err := json.Unmarshal(text, &written.Title); err != nil {
			t.Fatal(err)
		}
		if read["user_id"] != user || read["title"] != written.Title || len(read) != 7 {
			t.Fatalf("encoding/json reads %v", read)
		}
	})
}

func TestRecord(t *testing.T) {
	got := string(aJob(t).appendRecord(nil, `o"hara`, push.Low, nil))
	want := `{"id":"` + ID(aMessage, `o"hara`) + `","user_id":"o\"hara","expires_at":"` + accepted.Add(24*time.Hour).Format(time.RFC3339Nano) +
		`","priority":"low","sender_id":"shop","app":"shop","type":"news","title":"Snow"}`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// What is in a job would be in a million records.
func TestJobsAreRefused(t *testing.T) {
	rest := func(text string) func(*Job) { return func(j *Job) { j.Rest = []byte(text) } }
	for name, change := range map[string]func(*Job){
		"no object's end":             rest(`"sender_id":"shop","app":"shop"`),
		"something behind the object": rest(`"sender_id":"shop","app":"shop"}{}`),
		"an id of its own":            rest(`"sender_id":"shop","app":"shop","id":"n-1"}`),
		"a receiver":                  rest(`"sender_id":"shop","app":"shop","user_id":"u2"}`),
		"a device":                    rest(`"sender_id":"shop","app":"shop","device":{"platform":"fcm","token":"t"}}`),
		"an expiry":                   rest(`"sender_id":"shop","app":"shop","expires_at":"2030-01-01T00:00:00Z"}`),
		"a priority":                  rest(`"sender_id":"shop","app":"shop","priority":"low"}`),
		"another app's":               rest(`"sender_id":"shop","app":"bank"}`),
		"another sender's":            rest(`"sender_id":"bank","app":"shop"}`),
		"nothing":                     rest(``),
		"too large":                   rest(`"sender_id":"shop","app":"shop","title":"` + strings.Repeat("x", decode.MaxValue-500) + `"}`),
		"no partitions":               func(j *Job) { j.Partitions = 0 },
		"three parts":                 func(j *Job) { j.To.Parts = 3 },
		"too many parts":              func(j *Job) { j.To.Parts = 2 * Slices },
		"expired":                     func(j *Job) { j.Expires = j.Accepted },
		"no priority":                 func(j *Job) { j.Priority = 0 },
		"no lane":                     func(j *Job) { j.Lane = "" },
		"a long text":                 func(j *Job) { j.Campaign = strings.Repeat("x", maxText+1) },
		"tokens without data":         func(j *Job) { j.Clicks = true },
		"tokens and data elsewhere":   func(j *Job) { j.Clicks, j.Rest = true, []byte(`"sender_id":"shop","app":"shop","data":{}}`) },
		"tokens and nothing of data":  func(j *Job) { j.Clicks, j.Rest = true, []byte(DataBegins) },
		"a token of its own": func(j *Job) {
			withTokens(j)
			j.Rest = []byte(`"data":{"pf_click":"x"},"sender_id":"shop","app":"shop"}`)
		},
		"tokens that are too much": func(j *Job) {
			withTokens(j)
			j.Rest = []byte(`"data":{},"sender_id":"shop","app":"shop","title":"` + strings.Repeat("x", decode.MaxValue-1400) + `"}`)
		},
		"no time in the id": func(j *Job) { j.Message = uuid.MustParse("0199f3c2-7d1a-4c3e-9b1f-2a6c5d4e3f21") },
	} {
		j := aJob(t)
		change(j)
		if value, err := EncodeJob(j); err == nil {
			t.Errorf("%s: encoded as %d bytes", name, len(value))
		}
		if _, err := DecodeJob(j.append(nil)); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

func TestEncoding(t *testing.T) {
	j := aJob(t)
	value, err := EncodeJob(j)
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeJob(value)
	if err != nil {
		t.Fatal(err)
	}
	if read.Message != j.Message || read.To != j.To || read.Topic != j.Topic || read.Partitions != j.Partitions || !read.Accepted.Equal(j.Accepted) || !read.Expires.Equal(j.Expires) ||
		string(read.Rest) != string(j.Rest) || read.Priority != j.Priority || read.Campaign != j.Campaign {
		t.Errorf("read %+v", read)
	}
	c := &Chunk{Job: j, Part: 3, Done: Cursor{"u17", Counts{Emitted: 4, Skipped: [skips]int64{SkipPull: 2, SkipUser: 9}}}}
	chunk, err := DecodeChunk(c.encode())
	if err != nil {
		t.Fatal(err)
	}
	if chunk.Part != 3 || chunk.Done != c.Done || chunk.Message != j.Message {
		t.Errorf("read %+v", chunk)
	}
	if _, err := DecodeChunk(value); err == nil {
		t.Error("a job was read as a chunk")
	}
	if _, err := DecodeJob(c.encode()); err == nil {
		t.Error("a chunk was read as a job")
	}
	for version, bytes := range map[byte][]byte{sealedVersion + 1: value, chunkVersion + 1: c.encode()} {
		later := slices.Clone(bytes)
		later[0] = version
		_, job := DecodeJob(later)
		_, chunk := DecodeChunk(later)
		if of := map[bool]error{true: job, false: chunk}[version < 128]; !isVersion(of) {
			t.Errorf("version %d: %v", version, of)
		}
	}
}

// FuzzDecode: what is read is exactly what was written, so nothing has two forms.
func FuzzDecode(f *testing.F) {
	j := aJob(f)
	f.Add(j.append(nil))
	f.Add(aJob(f, func(j *Job) { j.Until = j.Expires.Add(time.Hour) }).append(nil))
	f.Add(aJob(f, withTokens).append(nil))
	f.Add(aJob(f, func(j *Job) { j.Sealed = []byte(`{"sealed":"x"}`) }).append(nil))
	f.Add(aJob(f, withTokens, func(j *Job) { j.Until = j.Expires.Add(time.Hour) }).append(nil))
	f.Add(aJob(f, ofApp, withTokens).append(nil))
	f.Add((&Chunk{Job: j, Part: 2, Done: Cursor{After: "u7", Counts: Counts{Emitted: 300}}}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, value []byte) {
		if j, err := DecodeJob(value); err == nil {
			if again, err := EncodeJob(j); err != nil || string(again) != string(value) {
				t.Fatalf("encoded again: %v", err)
			}
		}
		if c, err := DecodeChunk(value); err == nil {
			if string(c.encode()) != string(value) || c.Part >= c.To.Parts {
				t.Fatal("encoded again it is something else")
			}
		}
	})
}

func isVersion(err error) bool { return errors.Is(err, ErrVersion) }
