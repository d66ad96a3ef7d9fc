package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// germans are users whose country is Germany.
type germans struct{}

func (germans) Fetch(_ context.Context, _ []string, users []*push.User) error {
	for _, u := range users {
		*u = push.User{Profile: push.Profile{Country: "DE"}}
	}
	return nil
}

// reasons are why messages of these types are not sent in a batch that begins now;
// empty = they are.
func reasons(t *testing.T, stage *stages.Preferences, types ...string) []string {
	t.Helper()
	b := &pipeline.Batch{}
	for i, name := range types {
		b.Items = append(b.Items, pipeline.Item{Message: push.Message{ID: fmt.Sprint(i), UserID: "u", Type: name, Priority: push.Medium},
			Expires: push.At(time.Now().Add(time.Hour))})
	}
	if err := stage.Apply(t.Context(), b); err != nil {
		t.Error(err)
	}
	var list []string
	for i := range b.Items {
		list = append(list, string(b.Items[i].Reason))
	}
	return list
}

// Preferences and the hours of countries change while the worker runs, with the next
// batch. A file that is not valid changes none of them and is told by its key, and so
// does one whose limits cannot be.
func TestPreferencesAreReloaded(t *testing.T) {
	const always = "hours: [{from: \"08:00\", to: \"08:00\"}]" // all day, every day
	const (
		sent, notAsked    = "", string(push.NotOptedIn)
		dropped, tooLong  = string(push.QuietDropped), string(push.QuietTooLong)
		quietFromTheStart = "preferences: {promotional_types: [promotion]}\ncountries: [{country: DE, " + always + "}]"
	)
	parse := func(text string) (*configs.Config, error) { return configs.Parse([]byte(text), nil) }
	c, err := parse(quietFromTheStart)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r, err := newRules(c, nil, nil, func(bool) {}, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stage := &stages.Preferences{Users: germans{}, Rules: func() stages.Rules { return r.preferences("promotional") }}
	look := func(text string, times int) {
		for range times {
			r.look(func() (*configs.Config, error) { return parse(text) }, time.Now())
		}
	}
	types := []string{"promotion", "survey", "order"}
	for _, tt := range []struct {
		why, text string
		want      []string
		zone      string
		says      []string // empty = nothing
	}{
		{"as at the start", quietFromTheStart, []string{tooLong, sent, sent}, "UTC", nil},
		{"a type that is worth nothing later, and one that needs consent",
			"preferences: {promotional_types: [promotion], drop_types: [promotion], opt_in_types: [survey]}\ncountries: [{country: DE, " + always + "}]",
			[]string{dropped, notAsked, sent}, "UTC", []string{"preferences changed", "countries=1", "promotional_types=1"}},
		{"a zone that does not exist", "preferences: {default_zone: Moon/Base}", []string{dropped, notAsked, sent}, "UTC", []string{"preferences.default_zone", "IANA"}},
		{"hours that are none", "countries: [{country: DE, hours: [{from: noon, to: \"08:00\"}]}]", []string{dropped, notAsked, sent}, "UTC", []string{"countries[0].hours[0].from"}},
		{"a key that is none", "preferences: {drop_type: [order]}", []string{dropped, notAsked, sent}, "UTC", []string{"preferences", "drop_type"}},
		{"good preferences beside a limit that needs a restart", "preferences: {default_zone: Asia/Tokyo}\nlimits: {devices: {backend: cassandra}}",
			[]string{dropped, notAsked, sent}, "UTC", []string{"limits.devices", "restart"}},
		{"the country's zone alone", "countries: [{country: DE, zone: Europe/Berlin}]", []string{sent, sent, sent}, "Europe/Berlin", []string{"preferences changed"}},
		{"another default", "preferences: {default_zone: Asia/Tokyo, opt_in_types: [order]}", []string{sent, sent, notAsked}, "Asia/Tokyo", []string{"preferences changed"}},
		{"both change", "preferences: {default_zone: Asia/Tokyo}\nlimits: {senders: [{name: s, max: 1, window: 1h}]}", []string{sent, sent, sent}, "Asia/Tokyo", []string{"limits changed", "preferences changed"}},
	} {
		log.Reset()
		before := reasons(t, stage, types...)
		if look(tt.text, 1); !slices.Equal(reasons(t, stage, types...), before) {
			t.Errorf("%s: in force at the first look", tt.why)
		}
		look(tt.text, 1)
		if got := reasons(t, stage, types...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.why, got, tt.want)
		}
		if zone := r.zone(&push.User{Profile: push.Profile{Country: "DE"}}).String(); zone != tt.zone {
			t.Errorf("%s: by the clock of %s, want %s", tt.why, zone, tt.zone)
		}
		text := log.String()
		for _, want := range tt.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: says %q, want %q", tt.why, text, want)
			}
		}
		if len(tt.says) == 0 && text != "" {
			t.Errorf("%s: says %q", tt.why, text)
		}
		bad := strings.Contains(text, "level=ERROR")
		if good := testutil.ToFloat64(r.good) == 1; good == bad {
			t.Errorf("%s: successful %t, and says %q", tt.why, good, text)
		}
	}
}

// A batch goes by one set of rules, whenever they change: what is asked for and what is
// dropped belong together.
func TestPreferencesChangeBetweenBatches(t *testing.T) {
	with := func(optIn, drop string) *configs.Config {
		c := configs.Default()
		c.Preferences.OptInTypes, c.Preferences.DropTypes, c.Preferences.PromotionalTypes = []string{optIn}, []string{drop}, []string{drop}
		c.Countries = []configs.Country{{Country: "DE", Hours: []configs.Hours{{From: "08:00", To: "08:00"}}}}
		return c
	}
	a, b := with("x", "y"), with("y", "x")
	r, err := newRules(a, nil, nil, func(bool) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stage := &stages.Preferences{Users: germans{}, Rules: func() stages.Rules { return r.preferences("critical") }}
	one, other := []string{string(push.NotOptedIn), string(push.QuietDropped)}, []string{string(push.QuietDropped), string(push.NotOptedIn)}
	changed := make(chan struct{}) // closed when the rules change no more
	var batches sync.WaitGroup
	for range 4 {
		batches.Go(func() {
			for {
				if got := reasons(t, stage, "x", "y"); !slices.Equal(got, one) && !slices.Equal(got, other) {
					t.Errorf("%q: rules of both files", got)
				}
				select {
				case <-changed:
					return
				default:
				}
			}
		})
	}
	for i := range 200 {
		c := []*configs.Config{b, a}[i%2]
		for range 2 {
			r.look(func() (*configs.Config, error) { return c, nil }, time.Now())
		}
	}
	close(changed)
	batches.Wait()
	if got := reasons(t, stage, "x", "y"); !slices.Equal(got, one) {
		t.Errorf("%q in the end, want those of the last file, %q", got, one)
	}
}
