package fanout

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// Job is one message for an audience. What it says is pinned when it is accepted: a
// configuration that changes, or a topic that grows, changes nothing for a job that is
// under way, whose receivers would else be in two partitions.
type Job struct {
	Message     uuid.UUID // id of the message, a UUIDv7
	Sender      string    // who sends it, as its records say
	App         string
	ServiceType string
	Lane        string
	Topic       string    // the lane's
	Partitions  int32     // of the lane's topic, by which users are spread, from 1
	Accepted    time.Time // whole milliseconds, as Expires: the age of its records runs from here
	Expires     time.Time // after Accepted
	// Until is when the message ends for those who fetch it, in whole milliseconds: what its
	// sender has said, which can be long after its records expire. Zero = the sender said
	// nothing.
	Until       time.Time
	To          To
	Campaign    string        // what its notifications are counted by
	Traceparent string        // of the request; empty = none
	Priority    push.Priority // of its notifications, Bulk to Critical; receivers may have a lower one
	// Open is how many of its chunks are in Kafka at once, up to Slices: each that ends brings
	// the one that many on, so that all must go by the same number. 0 = the expander's choice.
	Open int
	// Clicks says that each notification has a token by which its app reports clicks, in the
	// data.
	Clicks bool
	// Rest is a record's value from behind its priority on, up to its closing brace: at
	// least the app. With Clicks it begins with DataBegins.
	Rest []byte
	// Sealed is of a message to a confidential topic, whose Rest has nothing of its text: what
	// those who fetch it find, encrypted, as an object of JSON. Its chunks do without it.
	Sealed []byte

	middles [push.Critical + 1][]byte // by priority; made by prepare
	kind    string                    // the type of its messages; made by prepare
}

// DataBegins is how the Rest of a job with Clicks begins, as the data of its messages.
const DataBegins = `"data":{`

// To says which audience a job has.
type To struct {
	Kind string // what Name names: OfTopic, OfApp, OfSegment
	Name string
	// Layout and Buckets say how the audience is kept.
	Layout, Buckets int
	Parts           int // of which each is a chunk: a power of two up to Slices
}

// The kinds of audiences.
const (
	OfTopic = "topic" // subscribers of a topic
	OfApp   = "app"   // users of an app, which is the job's; they lie in no layout
	// OfSegment are those users of the job's app who are in a segment, of a name such as
	// lifecycle/new, when their page is read.
	OfSegment = "segment"
)

// String names the audience, as no other one is: a topic by its name, which has no slash.
func (t *To) String() string {
	if t.Kind == OfTopic {
		return t.Name
	}
	return t.Kind + "/" + t.Name
}

// maxText is the longest of a job's texts, in bytes.
const maxText = 256

// MaxSealed is the longest Sealed, in bytes: a record of Kafka has a MiB.
const MaxSealed = 768 << 10

// prepare checks a job and makes what its records have in common. Its records are what a
// worker can read, for every receiver.
func (j *Job) prepare() error {
	for _, text := range []string{j.Sender, j.App, j.ServiceType, j.Lane, j.Topic, j.To.Kind, j.To.Name, j.Campaign, j.Traceparent} {
		if len(text) > maxText || !utf8.ValidString(text) {
			return fmt.Errorf("a text has %d bytes or is not UTF-8, want at most %d bytes", len(text), maxText)
		}
	}
	if err := checkMessageID(j.Message); err != nil {
		return err
	}
	switch {
	case j.App == "", j.Lane == "", j.Topic == "", j.To.Kind == "", j.To.Name == "":
		return errors.New("a job needs an app, a lane, its topic and an audience")
	case j.Partitions < 1:
		return fmt.Errorf("%d partitions", j.Partitions)
	case j.To.Parts < 1 || j.To.Parts > Slices || bits.OnesCount(uint(j.To.Parts)) != 1:
		return fmt.Errorf("an audience of %d parts, want a power of two up to %d", j.To.Parts, Slices)
	case j.To.Layout < 0 || j.To.Layout > maxNumber || j.To.Buckets < 0 || j.To.Buckets > maxNumber:
		return fmt.Errorf("layout %d of %d buckets", j.To.Layout, j.To.Buckets)
	case j.To.Kind == OfApp && (j.To.Name != j.App || j.To.Layout != 0 || j.To.Buckets != 0):
		return errors.New("users of an app are those of the job's, and lie in no layout")
	case j.To.Kind == OfSegment && (j.To.Layout != 0 || j.To.Buckets != 0):
		return errors.New("users in a segment lie in no layout")
	case j.Open < 0 || j.Open > Slices:
		return fmt.Errorf("%d open chunks, want up to %d", j.Open, Slices)
	case j.Priority < push.Bulk || j.Priority > push.Critical:
		return fmt.Errorf("priority %d", j.Priority)
	case !j.Until.IsZero() && (j.Until.Before(j.Expires) || j.Until.Year() > 9999):
		return errors.New("a message must end for those who fetch it when its records expire, or later")
	case len(j.Sealed) > 0 && j.To.Kind != OfTopic:
		return errors.New("only messages to topics are sealed")
	case len(j.Sealed) > MaxSealed:
		return fmt.Errorf("a sealed text takes %d bytes, want at most %d", len(j.Sealed), MaxSealed)
	case j.Clicks && !bytes.HasPrefix(j.Rest, []byte(DataBegins)):
		return errors.New("a message with click tokens must begin with its data")
	case j.Accepted.UnixMilli() < 0 || !j.Expires.After(j.Accepted) || j.Expires.Year() > 9999:
		return errors.New("a job must expire after it was accepted")
	}
	for p := push.Bulk; p <= push.Critical; p++ {
		j.middles[p] = middleOf(j.Expires, p)
	}
	if most := j.mostBytes(); most > decode.MaxValue {
		return fmt.Errorf("a record may take %d bytes, want at most %d", most, decode.MaxValue)
	}
	return j.checkRecord()
}

// probe is a receiver for whom a job's record is tried.
const probe = "a user \"\\\x01"

// message is what a receiver gets, here the probe. The job must have been prepared.
func (j *Job) message() (*push.Message, error) {
	var m push.Message
	if d := decode.Message(j.appendRecord(nil, probe, 0, nil), &m); d != nil {
		return nil, fmt.Errorf("its records could not be read: %s %s", d.Reason, d.Field)
	}
	return &m, nil
}

// checkRecord tries a record: a rest that is not an object's, or that names an id, a
// receiver, an expiry or a priority of its own, makes it unreadable.
func (j *Job) checkRecord() error {
	m, err := j.message()
	if err != nil {
		return err
	}
	if m.ID != ID(j.Message, probe) || m.UserID != probe || m.App != j.App || m.SenderID != j.Sender || m.Priority != j.Priority || m.Device.Token != "" || !m.ExpiresAt.Equal(j.Expires) {
		return errors.New("its records would not be for its receivers")
	}
	if !j.Clicks {
		return nil
	}
	j.kind = strings.Clone(m.Type)
	// A token for the probe: it may be there twice, or stand behind the end of the data.
	record := j.appendRecord(nil, probe, 0, probeTokens{})
	if d := decode.Message(record, m); d != nil {
		return fmt.Errorf("its records with click tokens could not be read: %s %s", d.Reason, d.Field)
	}
	return nil
}

// probeTokens are for trying a record.
type probeTokens struct{}

// AppendClickToken implements Tokens.
func (probeTokens) AppendClickToken(out []byte, _, _, _, _, _ string, _ time.Time) []byte {
	return append(out, "token"...)
}

// Slices is the run of slices of one part: from the first up to the one before end.
func (t *To) Slices(part int) (first, end int) {
	width := Slices / t.Parts
	return part * width, (part + 1) * width
}

// PartOf is the part that a user is in.
func (t *To) PartOf(user string) int { return SliceOf(user) / (Slices / t.Parts) }

// Chunk is one part of a job's audience.
type Chunk struct {
	*Job
	Part int // from 0
	// Done is how far it came before its message was paused.
	Done Cursor
}

// Cursor is a place within a part.
type Cursor struct {
	After string // the last member that was read; empty = none
	Counts
}

// Counts are how many members of a part were read, by what became of them.
type Counts struct {
	Emitted int64
	Skipped [skips]int64
	// Stopped says of a part that has ended that its message was cancelled before: no
	// chunk follows it.
	Stopped bool
}

// Skip is why a member gets no record.
type Skip int

// The reasons.
const (
	SkipPull    Skip = iota // fetches messages
	SkipLeft                // is no member any more
	SkipLater               // became one after the message was accepted
	SkipExpired             // the message had expired
	SkipUser                // the user's id can be no receiver's
	skips
)

var skipNames = [skips]string{"pull", "left", "later", "expired", "bad_user"}

// String is the reason's name.
func (s Skip) String() string { return skipNames[s] }

// ByReason are the skipped ones by the reason's name, without those of which there are none.
func (c *Counts) ByReason() map[string]int64 {
	by := make(map[string]int64)
	for s, n := range c.Skipped {
		if n > 0 {
			by[skipNames[s]] = n
		}
	}
	return by
}

// Add adds others.
func (c *Counts) Add(o *Counts) {
	c.Emitted += o.Emitted
	for s := range c.Skipped {
		c.Skipped[s] += o.Skipped[s]
	}
}

// expired reports whether nobody gets a notification any more.
func (j *Job) expired(now time.Time) bool { return !now.Before(j.Expires) }

// skip decides about a member: false = it gets the message.
func (j *Job) skip(m *Member, now time.Time) (Skip, bool) {
	switch {
	case !usable(m.User):
		return SkipUser, true
	case m.Left:
		return SkipLeft, true
	case m.Since.After(j.Accepted):
		return SkipLater, true
	case m.Pull:
		return SkipPull, true
	case j.expired(now):
		return SkipExpired, true
	}
	return 0, false
}

// wants reports whether one of a page gets the message.
func (j *Job) wants(m *Member, now time.Time) bool {
	_, skipped := j.skip(m, now)
	return !skipped && !m.Passed
}
