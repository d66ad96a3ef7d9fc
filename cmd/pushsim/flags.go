package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pushfleet/pushfleet/providers/sim"
)

const long = `pushsim answers like Apple's push service and Google's Firebase Cloud Messaging.

It listens on one TLS address for all three services:
  POST /3/device/TOKEN                       APNs (HTTP/2 only, by ALPN or by its preface)
  POST /v1/projects/PROJECT/messages:send    FCM HTTP v1
  POST /token                                Google's OAuth token endpoint

Requests are validated as the providers do it: headers, push types, payload
limits, the ES256 provider token, the RS256 assertion, the bearer token, the
fields of an FCM message. So is HTTP/2 itself, also with --raw: a request that
breaks its rules is reset, a connection that does ended with GOAWAY, and neither
is in the ledger; ADMIN/events says why ("protocol_error"). Every push and its
answer goes to a ledger, by the notification id in the payload (pf_id) and a
hash of the device token.

A sender needs three things from it, and --write-credentials makes them: the
certificate to trust, a signing key (.p8), and a service account (.json).

The admin address (plain HTTP, loopback) answers questions and takes orders:
  curl ADMIN/ledger                          sums; how many were accepted, why refused
  curl ADMIN/ledger?id=ID                    one notification, on all its devices
  curl ADMIN/ledger/entries                  everything, as JSON lines
  curl -X POST ADMIN/ledger/reset
  curl ADMIN/tokens -d '{"provider":"apns","token":"00fc13…","reply":"Unregistered","since":"2026-11-01T00:00:00Z"}'
  curl ADMIN/faults -d '{"provider":"fcm","unavailable":0.1,"retry_after":"10s","latency":"50ms"}'
  curl ADMIN/commands -d '{"do":"drain","provider":"apns","unprocessed":3}'
  curl ADMIN/commands -d '{"do":"answer","provider":"fcm","reply":"UNAVAILABLE","for":"2m"}'
  curl ADMIN/commands -d '{"do":"clock","step":"1h","rate":60}'
  curl ADMIN/schedule -d '[{"at":"5m","command":{"do":"kill","provider":"apns"}}]'
  curl ADMIN/events                          what was done and refused, with connection and stream

What can be done, at once, to the next requests ("times"), by chance (the
"chances" of /faults), to a token or prefix ("do" of /tokens) or by schedule:
  answer, lapse, exhaust, hang, wedge, refuse     to a request, or to dialling
  one_stream, slow_down, disconnect, drain, abandon, kill, mute, deaf, stall,
  black_hole, too_many_streams, session_timed_out, too_many_pings
                                                  to a connection
Other commands: faults, rules, lifelike, token, clock, calm. A schedule runs by
the simulated clock, which also decides about tokens and quotas.

Ctrl-C ends it with a summary of the ledger and exit status 130; SIGTERM ends
it with status 0. Status 1 is a failure, 2 a wrong command line.`

const example = `  # One app, keys and configuration in ./creds
  pushsim --app shop=com.example.shop --write-credentials ./creds

  # As slow as the real ones, with two percent of errors, always the same ones
  pushsim --latency lognormal:50ms,400ms --errors 0.02 --seed 7

  # For a throughput measurement: no validation, a ledger that only counts
  pushsim --raw --count-only`

// flags are the command line.
type flags struct {
	listen, admin  string
	hosts          []string
	apps           []string
	credentialsDir string
	caOut          string
	output         string
	profile        string

	latency    string
	jitter     time.Duration
	dateSkew   time.Duration
	schedule   string
	lifelike   bool
	errors     float64
	retryAfter time.Duration
	seed       uint64
	streams    int

	sandbox, raw, countOnly, patterns bool
}

func defaults() *flags {
	return &flags{
		listen: "127.0.0.1:0", admin: "127.0.0.1:0", apps: []string{"shop=com.example.shop"},
		output: "text", streams: 1000,
	}
}

func (f *flags) register(s *pflag.FlagSet) {
	s.StringVar(&f.listen, "listen", f.listen, "address of the providers, TLS; port 0 takes a free one")
	s.StringVar(&f.admin, "admin", f.admin, "address of ledger and orders, plain HTTP; empty turns it off")
	s.StringSliceVar(&f.hosts, "host", nil, "name or address that clients use, for the certificate (besides localhost)")
	s.StringSliceVar(&f.apps, "app", f.apps, "an app as NAME=BUNDLE_ID; may be repeated")
	s.StringVar(&f.credentialsDir, "write-credentials", "", "write ca.pem, APP.p8, APP-service-account.json and worker.yaml there")
	s.StringVar(&f.caOut, "ca-out", "", "write the certificate to trust to this file")
	s.StringVar(&f.latency, "latency", "0s", "time until an answer: 50ms, uniform:20ms,80ms, lognormal:MEDIAN,P99 or peaks:50ms,2s,SHARE")
	s.BoolVar(&f.lifelike, "lifelike", false, "all rules on: one stream until authenticated, adaptive limits, quotas, 100 streams for FCM, ping and dial limits")
	s.StringVar(&f.schedule, "schedule", "", "file of commands with their times: [{\"at\":\"5m\",\"command\":{…}}]")
	s.DurationVar(&f.jitter, "latency-jitter", 0, "up to this much more, uniformly distributed")
	s.Float64Var(&f.errors, "errors", 0, "share of pushes that fail by chance, 0 to 1: half 503, a quarter 500, a quarter 429")
	s.DurationVar(&f.retryAfter, "retry-after", 0, "Retry-After of FCM's 429 and 503, in whole seconds; 0 sends none")
	s.Uint64Var(&f.seed, "seed", 0, "of chance: the same notifications meet the same faults")
	s.IntVar(&f.streams, "streams", f.streams, "concurrent streams a connection may have")
	s.DurationVar(&f.dateSkew, "date-skew", 0, "set the Date of answers off by this; tokens are judged by the clock (command clock) all the same")
	s.BoolVar(&f.sandbox, "sandbox", false, "be Apple's development environment")
	s.BoolVar(&f.patterns, "token-patterns", false, "know tokens by their start: deaddead gone, badbadba invalid, 04290429 throttled")
	s.BoolVar(&f.raw, "raw", false, "accept every push unseen; what breaks HTTP/2 is refused all the same")
	s.BoolVar(&f.countOnly, "count-only", false, "keep no ids in the ledger, only their hashes and counts")
	s.StringVar(&f.profile, "cpu-profile", "", "write a CPU profile of the whole run to this file")
	s.StringVarP(&f.output, "output", "o", f.output, "text, or json: one line at the start, one at the end")
}

// options turns the flags into the simulator's, and makes the apps' keys.
func (f *flags) options() (sim.Options, []*sim.Credentials, error) {
	if f.output != "text" && f.output != "json" {
		return sim.Options{}, nil, fmt.Errorf("--output: %q is neither text nor json", f.output)
	}
	if f.errors < 0 || f.errors > 1 {
		return sim.Options{}, nil, fmt.Errorf("--errors: %v is not between 0 and 1", f.errors)
	}
	if f.streams < 1 {
		return sim.Options{}, nil, fmt.Errorf("--streams: %d is not at least 1", f.streams)
	}
	latency, err := sim.ParseDistribution(f.latency)
	if err != nil {
		return sim.Options{}, nil, fmt.Errorf("--latency: %w", err)
	}
	faults := sim.Faults{
		Unavailable: f.errors / 2, Internal: f.errors / 4, TooMany: f.errors / 4, RetryAfter: f.retryAfter,
	}
	faults.SetLatency(latency)
	faults.Jitter = f.jitter
	var oauth sim.Faults
	oauth.SetLatency(latency)
	o := sim.Options{
		Sandbox: f.sandbox, Raw: f.raw, CountOnly: f.countOnly, Seed: f.seed, Hosts: f.hosts,
		MaxConcurrentStreams: f.streams, DateSkew: f.dateSkew,
		Faults: sim.RouteSet{APNS: faults, FCM: faults, OAuth: oauth},
	}
	if f.lifelike {
		o.Rules = sim.LifelikeRules()
	}
	if o.Schedule, err = f.readSchedule(); err != nil {
		return sim.Options{}, nil, err
	}
	if f.patterns {
		o.Patterns = sim.Patterns()
	}
	var all []*sim.Credentials
	seen := map[string]bool{}
	for _, a := range f.apps {
		name, topic, _ := strings.Cut(a, "=")
		if !isAppName(name) || topic == "" || seen[name] {
			return sim.Options{}, nil, fmt.Errorf("--app: %q is not NAME=BUNDLE_ID with a name of its own (letters, digits, - and _)", a)
		}
		seen[name] = true
		c, err := sim.NewCredentials(name, topic)
		if err != nil {
			return sim.Options{}, nil, err
		}
		all = append(all, c)
		o.Apps = append(o.Apps, c.App())
	}
	return o, all, nil
}

func (f *flags) readSchedule() (list []sim.Scheduled, err error) {
	if f.schedule == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.schedule)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(&list)
	}
	if err != nil {
		return nil, fmt.Errorf("--schedule: %w", err)
	}
	return list, nil
}

// isAppName allows what is safe in a file name.
func isAppName(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}
