package gateway

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/gateway/quota"
)

const (
	// warnFrom is the part of a limit, in percent, from which callers are warned.
	warnFrom = 80
	// spread is what chance adds to the time after which a refused caller should come
	// again, at the most: all of them at once would be refused again.
	spread = 0.2
)

// admit lets as many messages of a request go on as the limits of their sender allow: the
// first ones. What is wrong anyway, and a repeat that is known, costs nothing. It runs before anything is produced.
func (g *Gateway) admit(ctx context.Context, s *sending) {
	if g.o.Quotas == nil {
		return
	}
	if s.quota = g.o.Quotas.Of(s.caller.Sender); s.quota == nil {
		return
	}
	n := 0
	for _, e := range s.entries {
		if e.goes() {
			n++
		}
	}
	if n > 0 {
		s.taken = s.quota.Take(ctx, n)
	}
	s.standings = s.quota.Standings(s.standings[:0])
	var refusal *Problem
	left := s.taken.Len()
	if left < n {
		refusal = g.tooMany(s.caller.Sender, s.standings)
	}
	for _, e := range s.entries {
		if !e.goes() {
			continue
		}
		if left--; left >= 0 {
			e.record.Admitted = true
			continue
		}
		p := *refusal
		e.problem = p.of(e.id)
		g.o.Metrics.refused(p.Code)
	}
}

// tooMany is the problem of a message beyond the limits of its sender.
func (g *Gateway) tooMany(sender string, standings []quota.Standing) *Problem {
	var over []string
	for _, s := range standings {
		if s.Remaining == 0 {
			over = append(over, s.Name)
		}
	}
	nearest := quota.Nearest(standings) // of those that are used up the one that lasts longest
	text := fmt.Sprintf("sender %s may send %d messages per %s", sender, nearest.Limit, nearest.Name)
	wait := nearest.Reset
	switch {
	case len(over) == 0: // what is left was not leased in time
		wait = time.Second
		text += ", and the gateways could not agree in time on what is left"
	case nearest.Part:
		text += "; Redis is away, so that each gateway has its part of that"
	}
	after := max(int(math.Ceil((wait + time.Duration(g.chance()*spread*float64(wait))).Seconds())), 1)
	p := newProblem(codeTooMany, text).after(after)
	p.Type, p.Message, p.Violated = typeQuotaExceeded, text, over
	p.Details = &LimitDetails{Limit: nearest.Limit, Window: nearest.Name, Current: nearest.Used, RetryAfter: after,
		ResetAt: clock().Add(nearest.Reset).Format(time.RFC3339Nano)}
	return p
}

// Names of headers, as net/http spells them.
const (
	headerLimit     = "X-Ratelimit-Limit"
	headerRemaining = "X-Ratelimit-Remaining"
	headerReset     = "X-Ratelimit-Reset"
	headerWarning   = "X-Ratelimit-Warning"
	headerPolicies  = "Ratelimit-Policy" // these two as draft-ietf-httpapi-ratelimit-headers-10 has them
	headerNearest   = "Ratelimit"
)

// tellLimits tells a caller in headers how far its sender has come: all policies, and of the
// nearest what is left and when its window ends, in seconds from now.
func tellLimits(h http.Header, standings []quota.Standing) {
	if len(standings) == 0 {
		return
	}
	var policies, warning []byte
	for i := range standings {
		s := &standings[i]
		if i > 0 {
			policies = append(policies, ", "...)
		}
		policies = fmt.Appendf(policies, `"%s";q=%d;w=%d`, s.Name, s.Limit, int(s.Window/time.Second))
		warning = appendWarning(warning, s)
	}
	n := quota.Nearest(standings)
	reset := strconv.Itoa(seconds(n.Reset))
	h[headerPolicies] = []string{string(policies)}
	h[headerNearest] = []string{fmt.Sprintf(`"%s";r=%d;t=%s`, n.Name, n.Remaining, reset)}
	h[headerLimit], h[headerRemaining], h[headerReset] = []string{strconv.Itoa(n.Limit)}, []string{strconv.Itoa(n.Remaining)}, []string{reset}
	if warning != nil {
		h[headerWarning] = []string{string(warning)}
	}
}

// appendWarning warns of a limit of which so much is used.
func appendWarning(out []byte, s *quota.Standing) []byte {
	used := s.Used * 100 / s.Limit
	if used < warnFrom {
		return out
	}
	if out != nil {
		out = append(out, ", "...)
	}
	return fmt.Appendf(out, `"%s";used=%d`, s.Name, used)
}

// recipientsWait is how long a message to many waits for how many receivers its sender has
// reached: it is answered without, else.
const recipientsWait = 50 * time.Millisecond

// warnOfRecipients warns a caller of a limit of receivers, too. It is none of the headers' other
// limits, which count messages.
func (g *Gateway) warnOfRecipients(ctx context.Context, h http.Header, c *Caller) {
	if g.o.Recipients == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recipientsWait)
	defer cancel()
	if s, err := g.o.Recipients.Standing(ctx, c.Sender); err == nil && s != nil {
		warnOf(h, s)
	}
}

// warnOf adds a limit to the warning that there is, if so much of it is used.
func warnOf(h http.Header, s *quota.Standing) {
	var warning []byte
	if text := h.Get(headerWarning); text != "" {
		warning = []byte(text)
	}
	if warning = appendWarning(warning, s); warning != nil {
		h[headerWarning] = []string{string(warning)}
	}
}

// seconds is a time in whole seconds, rounded up.
func seconds(d time.Duration) int { return int((max(d, 0) + time.Second - 1) / time.Second) }

// limitsAnswer is the answer to GET /v1/limits.
type limitsAnswer struct {
	Sender string        `json:"sender"`
	Shared bool          `json:"shared"`
	Limits []limitAnswer `json:"limits"`
}

type limitAnswer struct {
	Name      string `json:"name"`
	Window    int    `json:"window"` // seconds
	Limit     int    `json:"limit"`
	Used      int    `json:"used"`
	Remaining int    `json:"remaining"`
	Reset     int    `json:"reset"` // seconds from now
	ResetAt   string `json:"reset_at"`
}

// limits answers GET /v1/limits: how far the caller's sender has come, as Redis knows it now.
func (g *Gateway) limits(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	a := limitsAnswer{Sender: c.Sender, Shared: true, Limits: []limitAnswer{}}
	now := clock()
	if g.o.Quotas != nil {
		if sender := g.o.Quotas.Of(c.Sender); sender != nil {
			sender.Refresh(r.Context())
			standings := sender.Standings(nil)
			for i := range standings {
				a.add(&standings[i], now)
			}
			tellLimits(w.Header(), standings)
		}
	}
	if g.o.Recipients != nil {
		s, err := g.o.Recipients.Standing(r.Context(), c.Sender)
		if err != nil {
			g.o.Log.Warn("how many receivers a sender has reached is not known", "sender", c.Sender, "error", err)
			a.Shared = false
		} else if s != nil {
			a.add(s, now)
			warnOf(w.Header(), s)
		}
	}
	answer(w, http.StatusOK, "application/json", &a)
	return nil
}

// add tells of one limit.
func (a *limitsAnswer) add(s *quota.Standing, now time.Time) {
	a.Limits = append(a.Limits, limitAnswer{Name: s.Name, Window: int(s.Window / time.Second), Limit: s.Limit, Used: s.Used, Remaining: s.Remaining,
		Reset: seconds(s.Reset), ResetAt: now.Add(s.Reset).Format(time.RFC3339Nano)})
	a.Shared = a.Shared && !s.Part
}
