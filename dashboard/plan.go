package dashboard

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/pushfleet/pushfleet/sizing"
)

// Slider is a number of a plan that the page changes.
type Slider struct {
	Name   string  `json:"name"`
	Text   string  `json:"text"`
	Source string  `json:"source,omitempty"` // of its default
	Value  float64 `json:"value"`            // in the plan; times in seconds
	Shown  string  `json:"shown"`            // as people read it
	From   float64 `json:"from"`
	To     float64 `json:"to"`
	Whole  bool    `json:"whole,omitempty"`
	// Powers says that equal steps of the slider multiply the number.
	Powers bool `json:"powers,omitempty"`
}

// sliders are the numbers that are asked for first, with the ends of their sliders: the
// ranges of a plan are wider. Value is where a slider begins, where there is no default.
var sliders = [...]Slider{
	{Name: "rate", Value: 50_000, From: 100, To: 5e6, Powers: true},
	{Name: "devices", From: 1, To: 5},
	{Name: "fcm", From: 0, To: 1},
	{Name: "apns-latency", From: 0.005, To: 5, Powers: true},
	{Name: "fcm-latency", From: 0.005, To: 5, Powers: true},
	{Name: "worker-cpu", From: 2e-6, To: 2e-4, Powers: true},
	{Name: "workers", From: 0, To: 100, Whole: true},
	{Name: "partitions", From: 0, To: 512, Whole: true},
}

// plan is the answer to GET /plan.
type plan struct {
	Sliders []Slider      `json:"sliders"`
	Verdict string        `json:"verdict"`
	Short   []string      `json:"short"` // what there is too little of, and why
	Lines   []sizing.Line `json:"lines"` // the arithmetic
}

// plan works out what a load needs, as `pushctl plan` does, from the query's numbers and
// the defaults of all others.
func (s *Site) plan(w http.ResponseWriter, r *http.Request) {
	q, ok := wordsOf(w, r)
	if !ok {
		return
	}
	in, parameters := sizing.Default(), sizing.Parameters()
	answer := plan{Sliders: slices.Clone(sliders[:]), Short: []string{}}
	for _, p := range parameters {
		i := slices.IndexFunc(sliders[:], func(s Slider) bool { return s.Name == p.Name })
		if i >= 0 && sliders[i].Value != 0 {
			*p.Field(&in) = sliders[i].Value
		}
		if word := q.Get(p.Name); word != "" {
			n, err := strconv.ParseFloat(word, 64)
			if err != nil {
				refuse(w, http.StatusBadRequest, p.Name+": want a number; times are in seconds")
				return
			}
			*p.Field(&in) = n
		}
		if i >= 0 {
			at := &answer.Sliders[i]
			at.Text, at.Source, at.Value = p.Text, p.Source, *p.Field(&in)
			at.Shown = p.Kind.Text(at.Value)
		}
	}
	made, err := sizing.Of(in)
	if wrong, is := errors.AsType[*sizing.InputError](err); is {
		refuse(w, http.StatusBadRequest, wrong.Error())
		return
	}
	if err != nil {
		s.log.Error("the dashboard's plan", "error", err)
		refuse(w, http.StatusInternalServerError, "the plan cannot be made; the log says why")
		return
	}
	answer.Verdict, answer.Lines = made.Verdict(), made.Lines
	for _, short := range made.Short {
		answer.Short = append(answer.Short, short.String()+": "+short.Why)
	}
	tell(w, answer)
}
