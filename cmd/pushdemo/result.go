package main

import (
	"fmt"
	"io"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
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
	NotPushed    int            `json:"not_pushed"` // devices that a delivered notification did not reach
	Pushes       int            `json:"pushes"`
	Seconds      float64        `json:"seconds"`
	Rate         float64        `json:"notifications_per_second"`
	P50          float64        `json:"p50_ms"`
	P99          float64        `json:"p99_ms"`
	RSS          int            `json:"rss_mb"`
	// Unfinished counts records that were produced but not finished, after Ctrl-C.
	Unfinished int `json:"unfinished,omitempty"`

	expected    int      // pushes of the delivered notifications
	disagree    int      // differences between the ledgers
	differences []string // the first of them, in words
}

type demoSuppressed struct {
	Duplicate int `json:"duplicate"`
	OptedOut  int `json:"opted_out"`
	Limited   int `json:"limited"`
	NoDevice  int `json:"no_device"`
}

// clean reports whether every record is accounted for on every device, and all
// ledgers agree.
func (r *demoResult) clean() bool {
	return r.Lost == 0 && r.SentTwice == 0 && r.NotPushed == 0 && r.disagree == 0
}

// latencies measures from the record's Kafka timestamp to the provider's answer.
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
		if d.Result.Class != push.Unsent {
			_ = l.histogram.RecordValue(max(1, now.Sub(d.Item.Timestamp.Time()).Microseconds())) // ignored if longer than an hour
		}
	}
}

func (l *latencies) ms(percentile float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.histogram.ValueAtPercentile(percentile)) / 1000
}

// differ counts a difference and keeps the text of the first few.
func (r *demoResult) differ(format string, args ...any) {
	const enough = 10
	r.disagree++
	if len(r.differences) < enough {
		r.differences = append(r.differences, fmt.Sprintf(format, args...))
	}
}

// measure fills in times, rate and memory.
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
	row("duplicates", r.Suppressed.Duplicate, "second copies, found by a confirm read or by the open first copy")
	row("opted out", r.Suppressed.OptedOut, "suppressed: the user opted out of everything, the channel or the type")
	row("limited", r.Suppressed.Limited, "suppressed: over the user's cap")
	row("no device", r.Suppressed.NoDevice, "suppressed: no device registered, or its token was removed")
	row("expired", r.Expired, "past their expires_at")
	row("failed", r.Failed, "refused for every device: dead tokens")
	row("dead-lettered", r.DeadLettered, "unusable, kept in the DLQ with a reason")
	if r.Unfinished > 0 {
		row("unfinished", r.Unfinished, "not done when the demo was interrupted")
	}
	row("lost", r.Lost, "produced, but without an outcome")
	row("sent twice", r.SentTwice, "pushes that a device got again")
	row("not pushed", r.NotPushed, "devices that a delivered notification did not reach")
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d pushes accepted, for %d devices that delivered notifications had to reach; %.0f notifications/s over %.1f s; from produce to answer p50 %.0f ms, p99 %.0f ms; peak memory %d MB\n",
		r.Pushes, r.expected, r.Rate, r.Seconds, r.P50, r.P99, r.RSS)
	for _, d := range r.differences {
		_, err = fmt.Fprintln(w, "DIFFERENCE:", d)
	}
	if more := r.disagree - len(r.differences); more > 0 {
		_, err = fmt.Fprintf(w, "and %d more\n", more)
	}
	if err == nil && r.clean() && r.Unfinished == 0 && r.Produced > 0 {
		_, err = fmt.Fprintln(w, "Every record is accounted for, on every device; producer, providers, status store and DLQ agree.")
	}
	return err
}
