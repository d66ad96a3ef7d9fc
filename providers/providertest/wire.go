package providertest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// Wire is a request as a server sees it: pseudo headers, headers, and the body
// as one entry per JSON value, named body.<path>.
type Wire map[string]string

// transportsOwn are headers that say nothing about the notification.
var transportsOwn = []string{"user-agent", "accept-encoding", "content-length"}

// read takes a request apart.
func read(r *http.Request, body []byte) (Wire, error) {
	w := Wire{":method": r.Method, ":path": r.RequestURI, "protocol": r.Proto}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		if !slices.Contains(transportsOwn, name) {
			w[name] = strings.Join(values, " and ")
		}
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, fmt.Errorf("body %.80q: %w", body, err)
	}
	w.flatten("body", v)
	return w, nil
}

// flatten adds an entry for each value that is no object, and for empty ones.
func (w Wire) flatten(path string, v any) {
	if object, is := v.(map[string]any); is && len(object) > 0 {
		for key, value := range object {
			w.flatten(path+"."+key, value)
		}
		return
	}
	text, _ := json.Marshal(v) // it was read from JSON
	w[path] = string(text)
}

// Absent stands for what one of two requests does not have.
const Absent = "(absent)"

// Differences are the entries in which two requests differ: ours, theirs.
type Differences map[string][2]string

// Compare finds them.
func Compare(ours, theirs Wire) Differences {
	d := Differences{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(ours)), slices.Collect(maps.Keys(theirs))) {
		p := [2]string{Absent, Absent}
		for i, w := range [2]Wire{ours, theirs} {
			if v, ok := w[name]; ok {
				p[i] = v
			}
		}
		if p[0] != p[1] {
			d[name] = p
		}
	}
	return d
}

// Expect checks that they are what is expected, besides what always differs. A
// pair of equal values in expected says that an entry, against always, does
// not differ.
func (d Differences) Expect(t *testing.T, way string, always, expected Differences) {
	t.Helper()
	if want := always.and(expected); !reflect.DeepEqual(d, want) {
		t.Errorf("%s the requests differ in%v\nexpected%v", way, d, want)
	}
}

func (d Differences) and(more Differences) Differences {
	sum := maps.Clone(d)
	maps.Copy(sum, more)
	maps.DeleteFunc(sum, func(_ string, p [2]string) bool { return p[0] == p[1] })
	return sum
}

func (d Differences) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d)) {
		fmt.Fprintf(&b, "\n  %s: ours %.200s, theirs %.200s", name, d[name][0], d[name][1])
	}
	return b.String()
}

// Recorder is a server that accepts everything and keeps what came.
type Recorder struct {
	*httptest.Server
	came chan Wire
}

// NewRecorder starts one that ends with the test. tidy replaces what differs
// from request to request by what it is; answer is the body of its answers.
func NewRecorder(t *testing.T, tidy func(Wire), answer string) *Recorder {
	t.Helper()
	r := &Recorder{came: make(chan Wire, 1)}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		came, err := read(req, body)
		if err != nil {
			t.Error(err)
			came = Wire{}
		}
		tidy(came)
		r.came <- came
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	r.EnableHTTP2 = true
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

// Next returns what came, after a request that was answered.
func (r *Recorder) Next() Wire { return <-r.came }

// Sent is what reaches the recorder when client, one of it, sends m to a
// device.
func (r *Recorder) Sent(t *testing.T, client Client, m push.Message, platform push.Platform, token string) Wire {
	t.Helper()
	if m.Priority == 0 {
		m.Priority = push.Medium // the lane's default
	}
	d := delivery(platform, token, m)
	Push(t, client.Lane(0), []*pipeline.Delivery{d})
	if d.Result.Class != push.Delivered {
		t.Fatalf("%+v", d.Result)
	}
	return r.Next()
}

// Decoded is a record as its producer writes it, without id, app and user.
func Decoded(t *testing.T, record string) push.Message {
	t.Helper()
	var m push.Message
	if defect := decode.Message([]byte(`{"id":"n1","app":"shop","user_id":"u1",`+record+`}`), &m); defect != nil {
		t.Fatal(defect)
	}
	return m
}
