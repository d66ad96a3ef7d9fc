package gateway

import (
	"context"
	"net/http"

	"github.com/pushfleet/pushfleet/forms"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

// theirPreferences are a user's preferences in an answer.
type theirPreferences struct {
	UserID string `json:"user_id"`
	forms.Preferences
	// Unreadable: their latest record cannot be read; what is shown are those before.
	Unreadable bool `json:"unreadable"`
}

// changed is the answer to a change that Kafka has.
type changed struct {
	UserID string `json:"user_id"`
	Device string `json:"device,omitempty"` // hash of the token
}

// preferences answers GET /v1/users/{user}/preferences.
func (g *Gateway) preferences(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	u, problem := g.stored(r.Context(), v.user)
	if problem != nil {
		return problem
	}
	answer(w, http.StatusOK, "application/json", theirPreferences{UserID: v.user, Preferences: forms.OfPreferences(&u.Preferences),
		Unreadable: u.Quarantine&(push.PreferencesBroken|push.PreferencesUnknown) != 0})
	return nil
}

// setPreferences answers PUT /v1/users/{user}/preferences: those of the body replace all.
func (g *Gateway) setPreferences(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	var f forms.Preferences
	if problem := g.readObject(r, g.o.Limits.Message, &f, forms.PreferencesFields); problem != nil {
		return problem
	}
	p, err := f.Preferences()
	if err != nil {
		return invalid(err)
	}
	problem := g.change(r.Context(), "preferences", func(ctx context.Context, c *users.Client) error { return c.SetPreferences(ctx, v.user, p) })
	if problem != nil {
		return problem
	}
	answer(w, http.StatusAccepted, "application/json", changed{UserID: v.user})
	return nil
}
