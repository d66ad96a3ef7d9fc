package dashboard

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/pushfleet/pushfleet/sizing"
)

// The page's plan is that of the same numbers, and says what is missing.
func TestPlan(t *testing.T) {
	s := newSite(t, "")
	get := func(query string) (p plan) {
		t.Helper()
		if err := json.Unmarshal([]byte(body(t, ask(s, "GET", "/plan?"+query, nil))), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	in := sizing.Default()
	in.Rate, in.APNsLatency, in.Workers = 3.5e6, 0.08, 18
	want, err := sizing.Of(in)
	if err != nil {
		t.Fatal(err)
	}
	got := get("rate=3.5e6&apns-latency=0.08&workers=18")
	if got.Verdict != want.Verdict() || !slices.Equal(got.Lines, want.Lines) || len(got.Short) != len(want.Short) || len(want.Short) == 0 {
		t.Errorf("%+v, want %s", got, want.Verdict())
	}
	for _, slider := range got.Sliders {
		if slider.Text == "" || slider.Shown == "" || slider.From >= slider.To || slider.Powers && slider.From <= 0 {
			t.Errorf("%+v", slider)
		}
	}
	if i := slices.IndexFunc(got.Sliders, func(s Slider) bool { return s.Name == "apns-latency" }); got.Sliders[i].Value != 0.08 || got.Sliders[i].Shown != "80ms" {
		t.Errorf("%+v", got.Sliders[i])
	}
	// Without a number each slider stands between its ends, and the load can be met.
	for _, slider := range get("").Sliders {
		if slider.Value < slider.From || slider.Value > slider.To {
			t.Errorf("it begins outside: %+v", slider)
		}
	}
	if p := get(""); len(p.Short) != 0 {
		t.Errorf("at first: %v", p.Short)
	}
	for _, query := range []string{"rate=many", "rate=-1", "rate=NaN", "fcm=2", "apns-latency=1e9", "rate=1&rate=2"} {
		if r := ask(s, "GET", "/plan?"+query, nil); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", query, r.StatusCode)
		}
	}
}
