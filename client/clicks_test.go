package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/gateway"
)

// keeping is a producer that keeps the value of the last record.
type keeping struct {
	gateway.Producer
	value []byte // read when the message is answered
}

func (k *keeping) Produce(r gateway.Record, done func(gateway.Place, error)) {
	k.value = slices.Clone(r.Value)
	k.Producer.Produce(r, done)
}

// A message that asks for it has a token, by which its click is reported without the key,
// and again after a failure; it counts once, and its receipt says so.
func TestClicks(t *testing.T) {
	store := clicks.NewMemory()
	kept := &keeping{}
	w := newWorld(t, func(o *gateway.Options) {
		kept.Producer, o.Producer = o.Producer, kept
		o.Clicks = &gateway.Clicks{Store: store, Valid: time.Hour, Kept: 48 * time.Hour, Rate: 100}
	})
	accepted, err := w.client.Send(t.Context(), &Message{App: "shop", ServiceType: "transactional", UserID: "a/ü", Type: "news", Title: "Snow", Data: map[string]string{"order": "17"}, Clicks: true})
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		ID   string            `json:"id"`
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(kept.value, &sent); err != nil || sent.ID != accepted.ID || sent.Data["order"] != "17" {
		t.Fatalf("%+v, %v", sent, err)
	}
	tries, keys := 0, 0
	w.before = func(rw http.ResponseWriter, r *http.Request) bool {
		tries++
		if r.Header.Get("Authorization") != "" {
			keys++
		}
		if tries == 1 {
			rw.WriteHeader(http.StatusBadGateway)
		}
		return tries == 1
	}
	for range 2 {
		if err := w.client.ReportEvent(t.Context(), sent.Data["pf_click"], Clicked); err != nil {
			t.Fatal(err)
		}
	}
	if tries != 3 || keys != 0 || store.Notes() != 2 {
		t.Errorf("%d attempts, %d with the key, %d notes", tries, keys, store.Notes())
	}
	tries = 0
	errs, err := w.client.ReportEvents(t.Context(), []EventReport{{sent.Data["pf_click"], Clicked}, {"x", Clicked}, {sent.Data["pf_click"], Clicked}})
	var refused *Problem
	if len(errs) != 3 || errs[0] != nil || !errors.As(errs[1], &refused) || refused.Code != "no_such_token" || errs[2] != nil || !errors.As(err, &refused) {
		t.Errorf("in a batch: %v, %v", errs, err)
	}
	if tries != 2 || keys != 0 || store.Notes() != 4 {
		t.Errorf("in a batch: %d attempts, %d with the key, %d notes", tries, keys, store.Notes())
	}
	got, err := w.client.Clicks(t.Context(), "a/ü", "shop", 2)
	if err != nil || len(got.Counts) != 1 || got.Counts[0].Type != "news" || got.Counts[0].Clicked != 1 || got.Sender != "orders" || got.More || got.Counts[0].Day != got.To {
		t.Errorf("%+v, %v", got, err)
	}
	var p *Problem
	if _, err := w.client.Clicks(t.Context(), "a/ü", "bank", 0); !errors.As(err, &p) || p.Code != "foreign_app" {
		t.Errorf("another app: %v", err)
	}
	if errs, err := w.client.ReportEvents(t.Context(), nil); errs != nil || err == nil {
		t.Errorf("no reports: %v, %v", errs, err)
	}
	for event, code := range map[string]string{Clicked: "no_such_token", "OPENED": "invalid_field"} {
		if err := w.client.ReportEvent(t.Context(), "x", event); !errors.As(err, &p) || p.Code != code {
			t.Errorf("%s: %v", event, err)
		}
	}
}
