package configs

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Every contradiction: what is changed, and which key is named.
func TestContradictions(t *testing.T) {
	t.Parallel()
	app := func(c *Config) *App {
		a, f := APNS{Topic: "com.example.shop", TeamID: "ABCDE12345", KeyID: "FGHIJ67890", KeyFile: "k"}.defaults(),
			FCM{Project: "p", ServiceAccountFile: "s"}.defaults()
		c.Apps = append(c.Apps, App{Name: "shop", APNS: &a, FCM: &f})
		return &c.Apps[len(c.Apps)-1]
	}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		path   string
	}{
		{"a session that outlives the rebalance", func(c *Config) { c.Kafka.SessionTimeout = time.Minute }, "kafka.session_timeout"},
		{"answer, status row and commit take longer than the drain", func(c *Config) { c.Send.Deadline = 15 * time.Second }, "send.drain"},
		{"no time to leave the group", func(c *Config) { c.Send.Drain = 20*time.Second + LeaveTimeout - 1 }, "send.drain"},
		{"status rows take too long", func(c *Config) { c.Cassandra.Timeout = 10 * time.Second }, "send.drain"},
		{"drain and commit take as long as the rebalance", func(c *Config) { c.Send.Drain = 55 * time.Second }, "kafka.rebalance_timeout"},
		{"status rows die before the last copy of their record", func(c *Config) { c.Cassandra.TTL = 204*time.Hour - time.Second }, "cassandra.ttl"},
		{"a longer dedupe window without a longer TTL", func(c *Config) { c.Dedupe.Window = 300 * time.Hour }, "cassandra.ttl"},
		{"a longer retention without a longer TTL", func(c *Config) { c.Kafka.Topics.Retention = 700 * time.Hour }, "cassandra.ttl"},
		{"a greater age, up to which a copy may be held, without a longer TTL", func(c *Config) {
			c.Cassandra.TTL, c.Lanes[1].GreatestAge = 204*time.Hour, 24*time.Hour+time.Second
		}, "cassandra.ttl"},
		{"retries that take longer than any greatest age", func(c *Config) {
			c.Retries = Retries{Max: 100, Tiers: []time.Duration{2 * time.Hour}, Deferral: 3 * time.Hour}
			c.Cassandra.TTL = 300 * time.Hour
			for i := range c.Lanes {
				c.Lanes[i].GreatestAge = 24 * time.Hour
			}
		}, "cassandra.ttl"},
		{"Kafka deletes what may still be sent", func(c *Config) { c.Kafka.Topics.Retention = 23 * time.Hour }, "kafka.topics.retention"},
		{"more in flight than is confirmed after a crash", func(c *Config) { c.Send.InFlight = 40_001 }, "send.in_flight"},
		{"open records under one batch", func(c *Config) { c.Batch.OpenRecords = 9999 }, "batch.open_records"},
		{"rows that may wait under one batch of them", func(c *Config) { c.Status.Unacknowledged = 199 }, "status.unacknowledged"},
		{"a registry on the port of the worker, all addresses", func(c *Config) { c.Admin.Listen, c.Registry.Listen = "127.0.0.1:9090", ":9090" }, "registry.listen"},
		{"a registry on the port of the worker, written otherwise", func(c *Config) { c.Admin.Listen, c.Registry.Listen = "0.0.0.0:9090", ":9090" }, "registry.listen"},
		{"a registry on the port of the worker, by name", func(c *Config) { c.Admin.Listen, c.Registry.Listen = "127.0.0.1:9090", "localhost:9090" }, "registry.listen"},
		{"a registry on the port of the worker, with a zero", func(c *Config) { c.Admin.Listen, c.Registry.Listen = "127.0.0.1:9090", "127.0.0.1:09090" }, "registry.listen"},
		{"a lane whose group is the retry group of another", func(c *Config) { c.Lanes[1].Name = "critical.retry" }, "lanes[1].name"},
		{"two lanes of one name", func(c *Config) { c.Lanes[2].Name = "critical" }, "lanes[2].name"},
		{"two lanes of one topic", func(c *Config) { c.Lanes[1].Topic = "push.critical" }, "lanes[1].topic"},
		{"a lane on a retry topic", func(c *Config) { c.Lanes[1].Topic = "push.critical.retry.30s" }, "lanes[1].topic"},
		{"a lane on a deferral topic", func(c *Config) { c.Lanes[1].Topic = "push.critical.defer.30s" }, "lanes[1].topic"},
		{"a lane on a DLQ", func(c *Config) { c.Lanes[1].Topic = "push.critical.dlq" }, "lanes[1].topic"},
		{"a lane on the audit topic of a DLQ", func(c *Config) { c.Lanes[1].Topic = "push.critical.dlq.audit" }, "lanes[1].topic"},
		{"a lane on the users' topic", func(c *Config) { c.Lanes[1].Topic = "push.users" }, "lanes[1].topic"},
		{"a journal in which no day is whole", func(c *Config) { c.Lanes[1].Journal = 23 * time.Hour }, "lanes[1].journal"},
		{"retries that always come too late", func(c *Config) { c.Lanes[0].GreatestAge = 30 * time.Second }, "lanes[0].greatest_age"},
		{"a country twice", func(c *Config) { c.Countries = []Country{{Country: "DE"}, {Country: "*"}, {Country: "DE"}} }, "countries[2].country"},
		{"quiet hours of a type that is not promotional", func(c *Config) {
			c.Preferences.PromotionalTypes = []string{"promo"}
			c.Countries = []Country{{Country: "*", Hours: []Hours{{From: "20:00", To: "08:00", Types: []string{"promo", "news"}}}}}
		}, "countries[0].hours[0].types[1]"},
		{"a zone that nobody knows", func(c *Config) { c.Countries = []Country{{Country: "DE", Zone: "Europe/Atlantis"}} }, "countries[0].zone"},
		{"a zone of this machine", func(c *Config) { c.Preferences.DefaultZone = "Local" }, "preferences.default_zone"},
		{"a country of small letters", func(c *Config) { c.Countries = []Country{{Country: "de"}} }, "countries[0].country"},
		{"the end of a day", func(c *Config) {
			c.Countries = []Country{{Country: "DE", Hours: []Hours{{From: "20:00", To: "24:00"}}}}
		}, "countries[0].hours[0].to"},
		{"no day of the week", func(c *Config) {
			c.Countries = []Country{{Country: "DE", Hours: []Hours{{From: "20:00", To: "08:00", Days: []string{"mon", "Monday"}}}}}
		}, "countries[0].hours[0].days[1]"},
		{"all senders and some", func(c *Config) { c.Lanes[0].CriticalSenders = []string{"*", "auth"} }, "lanes[0].critical_senders"},
		{"a tier no longer than the one before", func(c *Config) { c.Retries.Tiers[2] = 5 * time.Minute }, "retries.tiers[2]"},
		{"a deferral within the tiers", func(c *Config) { c.Retries.Deferral = 30 * time.Minute }, "retries.deferral"},
		{"a tier of what is put off below the first", func(c *Config) { c.Retries.DeferTiers = []time.Duration{time.Minute, 30 * time.Second} }, "retries.defer_tiers[1]"},
		{"a tier of what is put off beyond the longest", func(c *Config) { c.Retries.DeferTiers = []time.Duration{2 * time.Hour} }, "retries.defer_tiers[0]"},
		{"probes that are judged before their answer", func(c *Config) { c.Gates.ProbeTimeout = c.Send.Deadline }, "gates.probe_timeout"},
		{"a longer deadline without longer probes", func(c *Config) { c.Send.Deadline = 15 * time.Second }, "gates.probe_timeout"},
		{"a first pause above the longest", func(c *Config) { c.Gates.FirstPause = 6 * time.Minute }, "gates.longest_pause"},
		{"a halt above the longest", func(c *Config) { c.Gates.LongestPause = 29 * time.Second }, "gates.longest_pause"},
		{"a span shorter than what is held after", func(c *Config) { c.Gates.HoldAfter = 61 * time.Second }, "gates.hold_span"},
		{"two rules of one name", func(c *Config) {
			r := Rule{Name: "r", Per: "user", Max: 1, Window: time.Hour}
			c.Limits.Rules = []Rule{r, r}
		}, "limits.rules[1].name"},
		{"the first layout starts late", func(c *Config) { c.Cassandra.Layout[0].Since = time.Unix(1e9, 0) }, "cassandra.layout[0].since"},
		{"layouts out of order", func(c *Config) {
			l := c.Cassandra.Layout[0]
			l.Since = time.Unix(2e9, 0)
			c.Cassandra.Layout = append(c.Cassandra.Layout, l, l)
		}, "cassandra.layout[2].since"},
		{"a layout from before 1970", func(c *Config) {
			l := c.Cassandra.Layout[0]
			l.Since = time.Unix(-1, 0)
			c.Cassandra.Layout = append(c.Cassandra.Layout, l)
		}, "cassandra.layout[1].since"},
		{"slices of half seconds", func(c *Config) { c.Cassandra.Layout[0].Slice = 1500 * time.Millisecond }, "cassandra.layout[0].slice"},
		{"a replication without class", func(c *Config) { c.Cassandra.Replication = map[string]string{"dc1": "3"} }, "cassandra.replication"},
		{"an app without provider", func(c *Config) { c.Apps = []App{{Name: "shop"}} }, "apps[0]"},
		{"an account with a section of its own", func(c *Config) { app(c).Accounts = map[string]string{"fcm.url": "https://x"} }, "apps[0].accounts.fcm.url"},
		{"an account on no platform", func(c *Config) { app(c).Accounts = map[string]string{"hologram.url": "https://x"} }, "apps[0].accounts.hologram.url"},
		{"an account without a platform", func(c *Config) { app(c).Accounts = map[string]string{"": "https://x"} }, "apps[0].accounts."},
		{"a project with two rates", func(c *Config) { app(c).FCM.Rate = 5; app(c).Name = "bank" }, "apps[1].fcm.rate"},
		{"a topic with two rates", func(c *Config) { app(c).APNS.Rate = 5; app(c).Name = "bank" }, "apps[1].apns.rate"},
		{"a rate below nothing", func(c *Config) { app(c).FCM.Rate = -1 }, "apps[0].fcm.rate"},
		{"a step that leaves nothing", func(c *Config) { c.Rates.OverQuota = 0 }, "rates.over_quota"},
		{"two apps of one name", func(c *Config) { app(c); app(c) }, "apps[1].name"},
		{"an environment twice", func(c *Config) { app(c).APNS.Environments = []string{"sandbox", "sandbox"} }, "apps[0].apns.environments[1]"},
		{"no environment", func(c *Config) { app(c).APNS.Environments = nil }, "apps[0].apns.environments"},
		{"an environment that Apple has not", func(c *Config) { app(c).APNS.Environments = []string{"staging"} }, "apps[0].apns.environments[0]"},
		{"Apple without TLS", func(c *Config) { app(c).APNS.ProductionURL = "http://api.push.apple.com" }, "apps[0].apns.production_url"},
		{"Google without TLS", func(c *Config) { app(c).FCM.URL = "http://127.0.0.1:8080" }, "apps[0].fcm.url"},
		{"TLS settings without TLS", func(c *Config) { c.Redis.TLS.CAFile = "ca.pem" }, "redis.tls.enabled"},
		{"a certificate without its key", func(c *Config) { c.Kafka.TLS = TLS{Enabled: true, CertFile: "c.pem"} }, "kafka.tls.cert_file"},
		{"a key without its certificate", func(c *Config) { c.Cassandra.TLS = TLS{Enabled: true, KeyFile: "k.pem"} }, "cassandra.tls.cert_file"},
		{"a Kafka user without mechanism", func(c *Config) { c.Kafka.SASL.Username = "u" }, "kafka.sasl.mechanism"},
		{"a mechanism without user", func(c *Config) { c.Kafka.SASL = SASL{Mechanism: "PLAIN", PasswordFile: "p"} }, "kafka.sasl.username"},
		{"a mechanism without password", func(c *Config) { c.Kafka.SASL = SASL{Mechanism: "SCRAM-SHA-512", Username: "u"} }, "kafka.sasl.password_file"},
		{"a Redis user without password", func(c *Config) { c.Redis.Username = "u" }, "redis.password_file"},
		{"a Cassandra user without password", func(c *Config) { c.Cassandra.Username = "u" }, "cassandra.password_file"},
		{"a Cassandra password without user", func(c *Config) { c.Cassandra.PasswordFile = "p" }, "cassandra.password_file"},
		{"two addresses of a single Redis", func(c *Config) { c.Redis.Addresses = []string{"a:1", "b:1"} }, "redis.addresses"},
		{"a broker twice", func(c *Config) { c.Kafka.Brokers = []string{"a:1", "a:1"} }, "kafka.brokers[1]"},
		{"a broker without port", func(c *Config) { c.Kafka.Brokers = []string{"a"} }, "kafka.brokers[0]"},
		{"an empty broker", func(c *Config) { c.Kafka.Brokers = []string{""} }, "kafka.brokers[0]"},
		{"the registry in a lane's group", func(c *Config) { c.Registry.Group = "pushfleet.promotional" }, "registry.group"},
		{"profiles for everybody", func(c *Config) { c.Admin = Admin{Listen: "0.0.0.0:9464", PProf: true} }, "admin.pprof"},
		{"the registry's profiles for everybody", func(c *Config) { c.Admin.PProf, c.Registry.Listen = true, "0.0.0.0:9465" }, "admin.pprof"},
		{"a worker and a registry at one address", func(c *Config) { c.Registry.Listen = c.Admin.Listen }, "registry.listen"},
		{"profiles on all addresses", func(c *Config) { c.Admin = Admin{Listen: ":9464", PProf: true} }, "admin.pprof"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Default()
			tt.change(c)
			ps, _ := c.Validate().(Problems)
			if !slices.ContainsFunc(ps, func(p Problem) bool { return p.Path == tt.path }) {
				t.Errorf("got %v, want a problem of %s", ps, tt.path)
			}
		})
	}
}

// The same places, from the side that works.
func TestNoContradiction(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"pauses that do not grow":         func(c *Config) { c.Gates.FirstPause, c.Gates.LongestPause = 30*time.Second, 30*time.Second },
		"probes judged after the answer":  func(c *Config) { c.Gates.ProbeTimeout = c.Send.Deadline + 1 },
		"held once the span is over":      func(c *Config) { c.Gates.HoldAfter = c.Gates.HoldSpan },
		"the least TTL":                   func(c *Config) { c.Cassandra.TTL = 204 * time.Hour },
		"short times of tests":            func(c *Config) { c.Kafka.SessionTimeout, c.Kafka.RebalanceTimeout = time.Second, 31*time.Second },
		"as much in flight as confirmed":  func(c *Config) { c.Send.InFlight = 40_000 },
		"any free ports":                  func(c *Config) { c.Admin.Listen, c.Registry.Listen = "127.0.0.1:0", "127.0.0.1:0" },
		"no listeners, and profiles":      func(c *Config) { c.Admin, c.Registry.Listen = Admin{PProf: true}, "" },
		"profiles on loopback":            func(c *Config) { c.Admin = Admin{Listen: "[::1]:0", PProf: true} },
		"no listener":                     func(c *Config) { c.Admin.Listen = "" },
		"a cluster of one known node":     func(c *Config) { c.Redis.Cluster = true },
		"a cluster of some":               func(c *Config) { c.Redis.Cluster, c.Redis.Addresses = true, []string{"a:1", "b:1"} },
		"a password for the default user": func(c *Config) { c.Redis.PasswordFile, c.Redis.TLS.Enabled = "p", true },
		"everybody may be critical":       func(c *Config) { c.Lanes[1].CriticalSenders = []string{"*"} },
		"hosts in every notation":         func(c *Config) { c.Cassandra.Hosts = []string{"c1", "10.0.0.1:9042", "::1", "[::1]:9042"} },
		"a new layout": func(c *Config) {
			c.Cassandra.Layout = append(c.Cassandra.Layout, Layout{Since: time.Unix(2e9, 0)}.defaults())
		},
	} {
		c := Default()
		change(c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAllProblemsAtOnceWithTheirLines(t *testing.T) {
	t.Parallel()
	ps := problemsOf(t, `kafka:
  brokers: [k1:9092, "k2"]
  session_timeout: 10
send:
  deadline: 15s
lanes:
  - name: a
    topic: push.a
  - name: a
    topic: push.b
    mode: exactly_once
nonsense: 1
`, "PUSHFLEET_RETRIES_MAX=many", "PUSHFLEET_STATUS_ROWS=0")
	var got []string
	for _, p := range ps {
		got = append(got, p.String())
	}
	for _, want := range []string{
		"line 3: kafka.session_timeout: wants a duration with its unit, such as 20ms, 10s or 720h, not a whole number",
		"line 12: nonsense: unknown key",
		"PUSHFLEET_RETRIES_MAX: retries.max: wants a whole number",
		"line 2: kafka.brokers[1]: must be a host and a port, such as 10.0.0.1:9092",
		"line 11: lanes[1].mode: must be one of at_least_once, effectively_once, at_most_once",
		"PUSHFLEET_STATUS_ROWS: status.rows: must be at least 1",
		"send.drain: 25s must be at least send.deadline + cassandra.timeout + kafka.commit_timeout + 1s to leave the group, 15s + 5s + 5s + 1s = 26s",
		"line 9: lanes[1].name: is also the name of another lane",
		"gates.probe_timeout: 15s must be more than send.deadline, 15s: otherwise a probe in flight counts as failed",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("missing %q", want)
		}
	}
	if len(got) != 9 {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if text := ps.Error(); !strings.HasPrefix(text, "9 problems\n  ") {
		t.Errorf("Error is %q", text)
	}
}

func TestLaneGroupsAndSenders(t *testing.T) {
	t.Parallel()
	c := Default()
	if g, r := c.Kafka.LaneGroup("critical"), c.Kafka.RetryGroup("critical"); g != "pushfleet.critical" || r != "pushfleet.critical.retry" {
		t.Errorf("groups %s and %s", g, r)
	}
	l := Lane{CriticalSenders: []string{"*"}}
	if l.MayBeCritical() != nil {
		t.Error("* must mean every sender")
	}
	if l.CriticalSenders = nil; l.MayBeCritical() == nil {
		t.Error("an empty list must mean no sender")
	}
	if l.CriticalSenders = []string{"auth"}; !l.MayBeCritical()["auth"] || l.MayBeCritical()["shop"] {
		t.Error("a list must mean its senders")
	}
	if w := c.Batch.Window(); w != 40_000 {
		t.Errorf("W = %d", w)
	}
}
