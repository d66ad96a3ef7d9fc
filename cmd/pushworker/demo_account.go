package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/status"
)

// demoResult is the demo's last line with --json; scripts depend on its keys.
type demoResult struct {
	Produced     int            `json:"produced"`
	Delivered    int            `json:"delivered"`
	Suppressed   demoSuppressed `json:"suppressed"`
	Expired      int            `json:"expired"`
	Failed       int            `json:"failed"`
	DeadLettered int            `json:"dead_lettered"`
	Lost         int            `json:"lost"`
	SentTwice    int            `json:"sent_twice"`
	Pushes       int            `json:"pushes"`
	Seconds      float64        `json:"seconds"`
	Rate         float64        `json:"notifications_per_second"`
	P50          float64        `json:"p50_ms"`
	P99          float64        `json:"p99_ms"`
	RSS          int            `json:"rss_mb"`
	// Only after Ctrl-C: what was produced and not finished.
	Unfinished int `json:"unfinished,omitempty"`

	differences []string
}

type demoSuppressed struct {
	Duplicate int `json:"duplicate"`
	OptedOut  int `json:"opted_out"`
	Limited   int `json:"limited"`
	NoDevice  int `json:"no_device"`
}

func (s demoSuppressed) sum() int { return s.Duplicate + s.OptedOut + s.Limited + s.NoDevice }

// clean is true when every record is accounted for and nothing disagrees.
func (r *demoResult) clean() bool { return r.Lost == 0 && r.SentTwice == 0 && len(r.differences) == 0 }

// latencies is from the record's Kafka timestamp to the provider's answer.
type latencies struct {
	mu        sync.Mutex
	histogram *hdrhistogram.Histogram // microseconds; guarded by mu
}

func newLatencies() *latencies {
	return &latencies{histogram: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

func (l *latencies) observe(ds []*pipeline.Delivery) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ds {
		if d.Result.Class != pipeline.NoAnswer {
			_ = l.histogram.RecordValue(max(1, now.Sub(d.Item.Timestamp).Microseconds())) // over an hour counts as nothing
		}
	}
}

func (l *latencies) ms(percentile float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.histogram.ValueAtPercentile(percentile)) / 1000
}

// produced is what the demo remembers of a record: enough to ask what became
// of it.
type produced struct {
	id   string
	fate crowd.Fate
}

// account asks the status store about every record that was produced, and the
// simulator about every push. deduped is what the worker counted as copies.
func account(ctx context.Context, records []produced, store *status.Memory, ledger *sim.Ledger, deduped int, interrupted bool) (*demoResult, error) {
	r := &demoResult{Produced: len(records)}
	broken := 0
	var ids []string
	var fates []crowd.Fate
	for _, p := range records {
		switch {
		case p.fate == crowd.IsCopy:
		case p.fate == crowd.DeadLetters:
			broken++ // some have no id to ask for
		default:
			ids, fates = append(ids, p.id), append(fates, p.fate)
		}
	}
	copies := len(records) - broken - len(ids)
	rows, err := store.Read(ctx, ids)
	if err != nil {
		return nil, err
	}
	open := 0
	for i := range ids {
		outcome := (&pipeline.History{Rows: rows[i]}).Outcome()
		if outcome == pipeline.NoRows || outcome == pipeline.OutcomeOpen {
			open++
			continue
		}
		if !r.count(outcome, rows[i]) || !fits(fates[i], outcome) {
			r.differ("%s, which %s, ended %v", ids[i], fates[i], outcome)
		}
	}
	deliveredRows := 0
	for _, rows := range store.All() {
		if (&pipeline.History{Rows: rows}).Outcome() == pipeline.OutcomeDeadLettered {
			r.DeadLettered++
		}
		for i := range rows {
			if rows[i].State == pipeline.StateDelivered {
				deliveredRows++
			}
		}
	}
	r.Suppressed.Duplicate = min(deduped, copies)
	missing := open + (broken - r.DeadLettered) + (copies - r.Suppressed.Duplicate)
	if interrupted {
		r.Unfinished = missing
	} else {
		r.Lost = missing
	}
	r.compare(ledger, deliveredRows, deduped, copies, interrupted)
	return r, nil
}

// count adds one notification to its column.
func (r *demoResult) count(o pipeline.Outcome, rows []pipeline.Row) bool {
	switch o {
	case pipeline.OutcomeDelivered:
		r.Delivered++
	case pipeline.OutcomeFailed:
		r.Failed++
	case pipeline.OutcomeExpired:
		r.Expired++
	case pipeline.OutcomeSuppressed:
		switch reason := rows[0].Reason; {
		case strings.HasPrefix(reason, string(pipeline.Limited)):
			r.Suppressed.Limited++
		case strings.HasPrefix(reason, "opted_out"):
			r.Suppressed.OptedOut++
		default:
			r.Suppressed.NoDevice++
		}
	default:
		return false
	}
	return true
}

// fits says whether an outcome is what the crowd meant.
func fits(f crowd.Fate, o pipeline.Outcome) bool {
	switch f {
	case crowd.Reaches:
		return o == pipeline.OutcomeDelivered
	case crowd.MayBeLimited:
		return o == pipeline.OutcomeDelivered || o == pipeline.OutcomeSuppressed
	case crowd.DeadEnds:
		return o == pipeline.OutcomeFailed || o == pipeline.OutcomeSuppressed
	case crowd.Expires:
		return o == pipeline.OutcomeExpired
	}
	return o == pipeline.OutcomeSuppressed
}

// compare holds the worker's story against the simulator's ledger.
func (r *demoResult) compare(ledger *sim.Ledger, deliveredRows, deduped, copies int, interrupted bool) {
	ledger.Each(func(e sim.Entry) bool {
		r.Pushes += e.Accepted
		if e.Accepted > 1 {
			r.SentTwice += e.Accepted - 1
		}
		return true
	})
	if !interrupted && r.Pushes != deliveredRows {
		r.differ("the providers accepted %d pushes, the status store has %d DELIVERED rows", r.Pushes, deliveredRows)
	}
	if deduped > copies {
		r.differ("%d records were called copies, %d were", deduped, copies)
	}
	if sum := r.Delivered + r.Suppressed.sum() + r.Expired + r.Failed + r.DeadLettered + r.Unfinished + r.Lost; sum != r.Produced {
		r.differ("%d records were produced, %d are accounted for", r.Produced, sum)
	}
}

// differ notes what disagrees; the first few are enough to look into it.
func (r *demoResult) differ(format string, args ...any) {
	const enough = 10
	if len(r.differences) < enough {
		r.differences = append(r.differences, fmt.Sprintf(format, args...))
	}
}

// measure fills in what the clock and the system say.
func (r *demoResult) measure(took time.Duration, l *latencies) {
	r.Seconds = round(took.Seconds(), 3)
	r.Rate = round(float64(r.Produced-r.Unfinished)/max(took.Seconds(), 0.001), 0)
	r.P50, r.P99 = round(l.ms(50), 1), round(l.ms(99), 1)
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		r.RSS = int(usage.Maxrss >> 10) // KiB on Linux: the peak
	}
}

func round(x float64, digits int) float64 {
	scale := 1.0
	for range digits {
		scale *= 10
	}
	return float64(int64(x*scale+0.5)) / scale
}

// print writes the table.
func (r *demoResult) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int, what string) {
		_, _ = fmt.Fprintf(t, "%s\t%d\t  %s\n", name, n, what)
	}
	row("produced", r.Produced, "records")
	row("delivered", r.Delivered, "accepted by APNs or FCM for at least one device")
	row("duplicates", r.Suppressed.Duplicate, "second copies, ended by a confirm read or their open first copy")
	row("opted out", r.Suppressed.OptedOut, "suppressed: of everything, of the channel, of the type")
	row("limited", r.Suppressed.Limited, "suppressed: over the user's cap")
	row("no device", r.Suppressed.NoDevice, "suppressed: nothing registered, or its token was removed")
	row("expired", r.Expired, "past their expires_at")
	row("failed", r.Failed, "every device refused: dead tokens")
	row("dead-lettered", r.DeadLettered, "could not be used, kept in the DLQ with a reason")
	if r.Unfinished > 0 {
		row("unfinished", r.Unfinished, "not done when it was interrupted")
	}
	row("lost", r.Lost, "")
	row("sent twice", r.SentTwice, "")
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d pushes accepted; %.0f notifications/s over %.1f s; from produce to answer p50 %.0f ms, p99 %.0f ms; peak memory %d MB\n",
		r.Pushes, r.Rate, r.Seconds, r.P50, r.P99, r.RSS)
	for _, d := range r.differences {
		_, err = fmt.Fprintln(w, "DIFFERENCE:", d)
	}
	if err == nil && r.clean() && r.Unfinished == 0 && r.Produced > 0 {
		_, err = fmt.Fprintln(w, "Every record is accounted for, and the providers' ledger agrees.")
	}
	return err
}
