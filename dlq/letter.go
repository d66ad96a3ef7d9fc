package dlq

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Letter is a dead letter as an operator sees it, without its text. Its JSON
// keys are those of `pushctl dlq ls`.
type Letter struct {
	Place     string     `json:"place"` // topic/partition/offset: identifies the letter
	Time      time.Time  `json:"time"`  // of dead-lettering
	Lane      string     `json:"lane"`
	ID        string     `json:"id"` // of the notification; empty if it cannot be decoded
	App       string     `json:"app"`
	Sender    string     `json:"sender"`
	Type      string     `json:"type"`
	Reason    string     `json:"reason"`
	Detail    string     `json:"detail"` // the field at fault, or the provider's last word
	Providers []string   `json:"providers"`
	Attempts  int        `json:"attempts"` // provider attempts before the last one
	Hops      int        `json:"hops"`
	Redrives  int        `json:"redrives"`
	Devices   []string   `json:"devices"` // hashes; empty = all
	Origin    string     `json:"origin"`
	FirstSeen *time.Time `json:"first_seen"`
	ExpiresAt *time.Time `json:"expires_at"` // the earlier of its own and the lane's greatest age
	Expired   bool       `json:"expired"`
	Mark      *Mark      `json:"mark"`    // nil: it is open
	Problem   string     `json:"problem"` // why its headers could not be read
	// Value is the record's value, byte by byte: message text and tokens in the
	// clear. Nil unless the caller has asked for it, or if there is none.
	Value *string `json:"value,omitempty"`
}

// Mark is what an operator did with a dead letter.
type Mark struct {
	What string    `json:"what"` // kafka.Redriven or kafka.Dismissed
	At   time.Time `json:"at"`
	By   string    `json:"by"`
}

// letter is the record as an operator sees it. It shares no memory with the
// record.
func (r *record) letter(now time.Time, reveal bool) Letter {
	l := Letter{Place: r.String(), Time: r.Timestamp.UTC(), Lane: r.lane.Name, ID: strings.Clone(r.message.ID), App: strings.Clone(r.message.App), Sender: strings.Clone(r.message.SenderID),
		Type: strings.Clone(r.message.Type), Reason: r.Reason, Detail: r.Detail, Providers: notNil(r.providers()), Attempts: r.Attempt, Hops: r.Hops, Redrives: r.Redrive,
		Devices: notNil(r.Devices), Origin: r.Origin, FirstSeen: utc(r.FirstSeen), ExpiresAt: utc(r.expires()), Expired: r.expired(now)}
	if r.marked {
		l.Mark = &Mark{What: r.mark.What, At: r.mark.At.UTC(), By: r.mark.By}
	}
	if r.Problem != nil {
		l.Problem = r.Problem.Error()
	}
	if reveal && r.Value != nil {
		value := string(r.Value)
		l.Value = &value
	}
	return l
}

// utc is a time for scripts; nil when it is not known.
func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// ListOptions say which dead letters to list, and how.
type ListOptions struct {
	Filter
	Limit    int           // at most this many, the newest; 0 = all
	Reveal   bool          // with their values: message text and tokens
	Progress func(Reading) // called now and then, on the caller's goroutine; may be nil
}

// Check finds invalid options. The error is an *OptionError.
func (o *ListOptions) Check() error {
	if err := o.Filter.Check(); err != nil {
		return err
	}
	return notNegative("limit", o.Limit)
}

// notNegative is the rule for options that are counts.
func notNegative(option string, n int) error {
	if n < 0 {
		return &OptionError{option, "must be 0 or more"}
	}
	return nil
}

// List returns the dead letters that pass the filter in order of time, and how
// many older ones the limit has left out. The slice is never nil. It needs
// memory for about twice the limit.
func (q *Queues) List(ctx context.Context, o ListOptions) (letters []Letter, older int, err error) {
	if err := o.Check(); err != nil {
		return nil, 0, err
	}
	now := time.Now()
	letters = []Letter{}
	newest := func() {
		slices.SortStableFunc(letters, func(x, y Letter) int { return x.Time.Compare(y.Time) })
		if o.Limit > 0 && len(letters) > o.Limit {
			older += len(letters) - o.Limit
			letters = slices.Delete(letters, 0, len(letters)-o.Limit)
		}
	}
	err = q.each(ctx, &o.Filter, o.Progress, func(r *record) error {
		if letters = append(letters, r.letter(now, o.Reveal)); o.Limit > 0 && len(letters) >= 2*o.Limit+1000 {
			newest()
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	newest()
	return letters, older, nil
}
