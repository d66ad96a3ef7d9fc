package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// UserLimits tells how limits stand for users, from what workers decide by. It is safe for
// concurrent use.
type UserLimits interface {
	// Uses returns the rules that a message of this type and app would be held against, for
	// each of the lanes. It changes nothing.
	Uses(ctx context.Context, user, app, messageType string, lanes []string) ([][]LimitUse, error)
}

// LimitUse is how much of a limit a user has used.
type LimitUse struct {
	Rule    string
	Per     string // what it counts together, as the configuration has it
	Device  string // hash of the token, of limits of devices
	Used    int
	Limit   int
	FreeAt  time.Time // when there is room for one more; not after now = there is; zero = never
	ResetAt time.Time // when nothing counts any more; zero = nothing does
}

// theirLimits are a user's limits in an answer.
type theirLimits struct {
	UserID string       `json:"user_id"`
	App    string       `json:"app"`
	Type   string       `json:"type"`
	Limits []theirLimit `json:"limits"`
}

type theirLimit struct {
	ServiceType string    `json:"service_type"`
	Rule        string    `json:"rule"`
	Per         string    `json:"per"`
	Device      string    `json:"device,omitempty"`
	Used        int       `json:"used"`
	Limit       int       `json:"limit"`
	Reached     bool      `json:"reached"`
	FreeAt      time.Time `json:"free_at,omitzero"` // of one that is reached
	ResetAt     time.Time `json:"reset_at,omitzero"`
	Meaning     string    `json:"meaning"`
}

// usualType is the type of messages that name none (docs/messages.md).
const usualType = "default"

// limitsQuestion reads what is asked about: app, and type and service_type, which may be
// left out.
func (g *Gateway) limitsQuestion(r *http.Request, v *visitor) (app, kind string, services []string, problem *Problem) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", "", nil, badPage("the query cannot be read")
	}
	for name, values := range query {
		if name != "app" && name != "type" && name != "service_type" || len(values) != 1 {
			return "", "", nil, badPage("want a query of app, type, service_type, each once")
		}
	}
	app, kind, services = query.Get("app"), query.Get("type"), g.services
	if problem := g.ownApp(v, app); problem != nil {
		return "", "", nil, problem
	}
	if kind == "" {
		kind = usualType
	}
	if _, err := without(push.Preferences{}, kind); err != nil {
		return "", "", nil, newProblem(codeInvalidField, "want a message type of 1 to 64 bytes").at("/type")
	}
	if service := query.Get("service_type"); query.Has("service_type") {
		if g.first[service] == nil {
			return "", "", nil, newProblem(codeInvalidField, "there is no such service type").at("/service_type")
		}
		services = []string{service}
	}
	return app, kind, services, nil
}

// limitsOfUser answers GET /v1/users/{user}/limits.
func (g *Gateway) limitsOfUser(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	if g.o.UserLimits == nil {
		return newProblem(codeNotConfigured, "this gateway has no registry from which users could be read")
	}
	app, kind, services, problem := g.limitsQuestion(r, v)
	if problem != nil {
		return problem
	}
	lanes := make([]string, len(services))
	for i, service := range services {
		lanes[i] = g.first[service].Name
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	uses, err := g.o.UserLimits.Uses(ctx, v.user, app, kind, lanes)
	if err != nil {
		g.o.Log.Warn("limits of users cannot be read", "error", err)
		return newProblem(codeRegistryAway, "the registry of users does not answer, is not complete, or has a state of limits that cannot be read").after(2)
	}
	a, now := theirLimits{UserID: v.user, App: app, Type: kind, Limits: []theirLimit{}}, time.Now()
	for i, service := range services {
		for j := range uses[i] {
			a.Limits = append(a.Limits, theirLimitOf(service, &uses[i][j], now))
		}
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}

func theirLimitOf(service string, u *LimitUse, now time.Time) theirLimit {
	l := theirLimit{ServiceType: service, Rule: u.Rule, Per: u.Per, Device: u.Device, Used: u.Used, Limit: u.Limit, ResetAt: u.ResetAt.UTC(),
		Reached: u.FreeAt.IsZero() || u.FreeAt.After(now), Meaning: fmt.Sprintf("%d of %d used", u.Used, u.Limit)}
	switch {
	case !l.Reached:
	case u.FreeAt.IsZero():
		l.Meaning = fmt.Sprintf("reached: %d of %d, and nothing is let through", u.Used, u.Limit)
	default:
		l.FreeAt = u.FreeAt.UTC()
		l.Meaning = fmt.Sprintf("reached: %d of %d, free again at %s", u.Used, u.Limit, l.FreeAt.Format(time.RFC3339))
	}
	return l
}
