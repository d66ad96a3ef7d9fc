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

const long = `pushsim simulates Apple's push service and Google's Firebase Cloud Messaging.

It listens on one TLS address for all three services:
  POST /3/device/TOKEN                       APNs (HTTP/2 only, by ALPN or by its preface)
  POST /v1/projects/PROJECT/messages:send    FCM HTTP v1
  POST /token                                Google's OAuth token endpoint

Requests are validated as the providers do: headers, push types, payload limits,
the ES256 provider token, the RS256 assertion, the bearer token, the fields of an
FCM message. HTTP/2 itself is validated too, even with --raw: a request that
breaks its rules is reset, and a connection that does is ended with GOAWAY.
Neither is in the ledger; ADMIN/events has the cause ("protocol_error"). The
ledger records every push and its answer, by the notification id in the payload
(pf_id) and a hash of the device token.

A sender needs three files, which --write-credentials writes: the certificate to
trust, a signing key (.p8), and a service account (.json).

The admin address (plain HTTP, loopback) answers queries and takes commands:
  curl ADMIN/ledger                          totals: accepted, and refused by reason
  curl ADMIN/ledger?id=ID                    one notification, on all its devices
  curl ADMIN/ledger/entries                  everything, as JSON lines
  curl -X POST ADMIN/ledger/reset
  curl ADMIN/tokens -d '{"provider":"apns","token":"00fc13…","reply":"Unregistered","since":"2026-11-01T00:00:00Z"}'
  curl ADMIN/faults -d '{"provider":"fcm","unavailable":0.1,"retry_after":"10s","latency":"50ms"}'
  curl ADMIN/commands -d '{"do":"drain","provider":"apns","unprocessed":3}'
  curl ADMIN/commands -d '{"do":"answer","provider":"fcm","reply":"UNAVAILABLE","for":"2m"}'
  curl ADMIN/commands -d '{"do":"clock","step":"1h","rate":60}'
  curl ADMIN/schedule -d '[{"at":"5m","command":{"do":"kill","provider":"apns"}}]'
  curl ADMIN/events                          faults and refusals, with connection and stream

Faults can happen at once, to the next requests ("times"), by chance ("chances"
of /faults), for a token or prefix ("do" of /tokens), or by schedule:
  answer, lapse, exhaust, hang, wedge, refuse     to a request or a new connection
  one_stream, slow_down, disconnect, drain, abandon, kill, mute, deaf, stall,
  black_hole, too_many_streams, session_timed_out, too_many_pings
                                                  to a connection
Other commands: faults, rules, lifelike, token, clock, calm. Schedules, tokens and
quotas go by the simulated clock.

Ctrl-C ends pushsim with exit status 130, SIGTERM with status 0; both print a
summary of the ledger. Status 1 is a failure, 2 a wrong command line.`

const example = `  # One app, keys and configuration in ./creds
  pushsim --app shop=com.example.shop --write-credentials ./creds

  # As slow as the real ones, with two percent errors, the same ones in each run
  pushsim --latency lognormal:50ms,400ms --errors 0.02 --seed 7

  # To measure throughput: no validation, and a ledger that only counts
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
	s.StringVar(&f.admin, "admin", f.admin, "address of ledger and commands, plain HTTP; empty = none")
	s.StringSliceVar(&f.hosts, "host", nil, "name or address for the certificate, in addition to localhost")
	s.StringSliceVar(&f.apps, "app", f.apps, "an app as NAME=BUNDLE_ID; may be repeated")
	s.StringVar(&f.credentialsDir, "write-credentials", "", "write ca.pem, APP.p8, APP-service-account.json and worker.yaml to this folder")
	s.StringVar(&f.caOut, "ca-out", "", "write the certificate to trust to this file")
	s.StringVar(&f.latency, "latency", "0s", "time until an answer: 50ms, uniform:20ms,80ms, lognormal:MEDIAN,P99 or peaks:50ms,2s,SHARE")
	s.BoolVar(&f.lifelike, "lifelike", false, "turn all rules on: one stream until authenticated, adaptive limits, quotas, 100 streams for FCM, ping and dial limits")
	s.StringVar(&f.schedule, "schedule", "", "file of commands with their times: [{\"at\":\"5m\",\"command\":{…}}]")
	s.DurationVar(&f.jitter, "latency-jitter", 0, "add up to this much to the latency, uniformly distributed")
	s.Float64Var(&f.errors, "errors", 0, "share of pushes that fail by chance, 0 to 1: half 503, a quarter 500, a quarter 429")
	s.DurationVar(&f.retryAfter, "retry-after", 0, "Retry-After of FCM's 429 and 503, in whole seconds; 0 = none")
	s.Uint64Var(&f.seed, "seed", 0, "random seed: the same notifications meet the same faults")
	s.IntVar(&f.streams, "streams", f.streams, "concurrent streams per connection")
	s.DurationVar(&f.dateSkew, "date-skew", 0, "shift the Date of answers by this; tokens still go by the simulated clock (command clock)")
	s.BoolVar(&f.sandbox, "sandbox", false, "simulate Apple's development environment")
	s.BoolVar(&f.patterns, "token-patterns", false, "answer by the token's prefix: deaddead gone, badbadba invalid, 04290429 throttled")
	s.BoolVar(&f.raw, "raw", false, "accept every push without validation; requests that break HTTP/2 are still refused")
	s.BoolVar(&f.countOnly, "count-only", false, "keep only hashes and counts in the ledger, no ids")
	s.StringVar(&f.profile, "cpu-profile", "", "write a CPU profile of the whole run to this file")
	s.StringVarP(&f.output, "output", "o", f.output, "text, or json: one line at the start, one at the end")
}

// options turns the flags into the simulator's options and makes the apps' keys.
func (f *flags) options() (sim.Options, []*sim.Credentials, error) {
	if f.output != "text" && f.output != "json" {
		return sim.Options{}, nil, fmt.Errorf("--output: %q is neither text nor json", f.output)
	}
	if f.errors < 0 || f.errors > 1 {
		return sim.Options{}, nil, fmt.Errorf("--errors: %v is not between 0 and 1", f.errors)
	}
	if f.streams < 1 {
		return sim.Options{}, nil, fmt.Errorf("--streams: %d is less than 1", f.streams)
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
			return sim.Options{}, nil, fmt.Errorf("--app: %q is not NAME=BUNDLE_ID with a unique name (letters, digits, - and _)", a)
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

// isAppName reports whether s is safe in a file name.
func isAppName(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}
