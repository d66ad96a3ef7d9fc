package configs

import (
	"slices"
	"time"
)

// Config is a worker's whole configuration. Defaults, units and arithmetic are
// in worker.yaml. The check tags are the rules for single values; Validate adds
// the rules for several values together. A Config is not changed once loaded,
// and then safe for concurrent use.
type Config struct {
	Kafka       Kafka       `yaml:"kafka"`
	Redis       Redis       `yaml:"redis"`
	Cassandra   Cassandra   `yaml:"cassandra"`
	Inbox       Inbox       `yaml:"inbox"`
	Lanes       []Lane      `yaml:"lanes" check:"required"`
	Batch       Batch       `yaml:"batch"`
	Dedupe      Dedupe      `yaml:"dedupe"`
	Preferences Preferences `yaml:"preferences"`
	Countries   []Country   `yaml:"countries"`
	Limits      Limits      `yaml:"limits"`
	Segments    Segments    `yaml:"segments"`
	Send        Send        `yaml:"send"`
	Status      Status      `yaml:"status"`
	Retries     Retries     `yaml:"retries"`
	Gates       Gates       `yaml:"gates"`
	Feedback    Feedback    `yaml:"feedback"`
	Rates       Rates       `yaml:"rates"`
	Events      Events      `yaml:"events"`
	Traces      Traces      `yaml:"traces"`
	Apps        []App       `yaml:"apps"`
	Registry    Registry    `yaml:"registry"`
	Gateway     Gateway     `yaml:"gateway"`
	Admin       Admin       `yaml:"admin"`
	Log         Log         `yaml:"log"`
}

// Kafka says where the brokers are and how the worker behaves as a consumer.
type Kafka struct {
	Brokers          []string      `yaml:"brokers" check:"required,hostport"`
	ClientID         string        `yaml:"client_id" check:"required"`
	TLS              TLS           `yaml:"tls"`
	SASL             SASL          `yaml:"sasl"`
	Group            string        `yaml:"group" check:"required,name"`
	SessionTimeout   time.Duration `yaml:"session_timeout" check:"min=500ms,max=5m"`
	RebalanceTimeout time.Duration `yaml:"rebalance_timeout" check:"min=1s,max=30m"`
	CommitTimeout    time.Duration `yaml:"commit_timeout" check:"min=100ms,max=5m"`
	CommitInterval   time.Duration `yaml:"commit_interval" check:"min=10ms,max=1m"`
	FirstStart       string        `yaml:"first_start" check:"oneof=earliest"`
	Protocol         string        `yaml:"protocol" check:"oneof=classic|consumer"`
	Balancer         string        `yaml:"balancer" check:"oneof=cooperative-sticky|range"` // of the classic protocol
	JoinWithin       time.Duration `yaml:"join_within" check:"min=0s,max=1m"`
	Topics           Topics        `yaml:"topics"`
}

// LaneGroup is the consumer group of a lane's topic; those beside it have
// RetryGroup, so that the main partitions stay evenly spread.
func (k *Kafka) LaneGroup(lane string) string { return k.Group + "." + lane }

// RetryGroup is the consumer group of a lane's retry, deferral and hold topics.
func (k *Kafka) RetryGroup(lane string) string { return k.Group + "." + lane + ".retry" }

// Topics is how `pushctl topics ensure` creates topics, and what is assumed
// about those that exist.
type Topics struct {
	Partitions  int           `yaml:"partitions" check:"min=1,max=100000"`
	Replication int           `yaml:"replication" check:"min=-1,max=9"`
	Retention   time.Duration `yaml:"retention" check:"min=1h,max=87600h"`
}

// SASL is how the worker authenticates to Kafka. No mechanism = not at all.
type SASL struct {
	Mechanism    string `yaml:"mechanism" check:"oneof=|PLAIN|SCRAM-SHA-256|SCRAM-SHA-512"`
	Username     string `yaml:"username"`
	PasswordFile string `yaml:"password_file"`
	Insecure     bool   `yaml:"insecure"` // PLAIN without TLS is accepted
}

// Redis says where dedupe filters, user records and limiter states are kept.
type Redis struct {
	Addresses    []string      `yaml:"addresses" check:"required,hostport"`
	Cluster      bool          `yaml:"cluster"`
	Username     string        `yaml:"username"`
	PasswordFile string        `yaml:"password_file"`
	Insecure     bool          `yaml:"insecure"` // a password without TLS is accepted
	TLS          TLS           `yaml:"tls"`
	DialTimeout  time.Duration `yaml:"dial_timeout" check:"min=10ms,max=1m"`
	ReadTimeout  time.Duration `yaml:"read_timeout" check:"min=10ms,max=1m"`
	WriteTimeout time.Duration `yaml:"write_timeout" check:"min=10ms,max=1m"`
	Pool         int           `yaml:"pool" check:"min=1,max=1000"`
}

// Cassandra says where the status rows go.
type Cassandra struct {
	Hosts        []string          `yaml:"hosts" check:"required,host"`
	Keyspace     string            `yaml:"keyspace" check:"required,keyspace"`
	LocalDC      string            `yaml:"local_dc"`
	Username     string            `yaml:"username"`
	PasswordFile string            `yaml:"password_file"`
	Insecure     bool              `yaml:"insecure"` // a password without TLS is accepted
	TLS          TLS               `yaml:"tls"`
	Consistency  string            `yaml:"consistency" check:"oneof=LOCAL_QUORUM|QUORUM|EACH_QUORUM|ALL|ONE|LOCAL_ONE"`
	Timeout      time.Duration     `yaml:"timeout" check:"min=100ms,max=1m"`
	Connections  int               `yaml:"connections" check:"min=1,max=64"`
	Concurrency  int               `yaml:"concurrency" check:"min=1,max=1024"`
	PackedRows   bool              `yaml:"packed_rows"` // rows are written in one column; only for fleets whose every reader knows it
	TTL          time.Duration     `yaml:"ttl" check:"min=1h,max=87600h"`
	Replication  map[string]string `yaml:"replication" check:"required"`
	Layout       []Layout          `yaml:"layout" check:"required"`
}

// Layout is how ids minted from Since on are spread over partitions. Layouts
// are added at the end and never changed.
type Layout struct {
	Since  time.Time     `yaml:"since"` // zero for the first
	Slice  time.Duration `yaml:"slice" check:"min=1s,max=24h"`
	Shards int           `yaml:"shards" check:"min=1,max=65536"`
}

// Lane is one topic of notifications with its own consumer, pipeline and
// queues.
type Lane struct {
	Name            string        `yaml:"name" check:"required,name"`
	Topic           string        `yaml:"topic" check:"required,topic"`
	Mode            string        `yaml:"mode" check:"oneof=at_least_once|effectively_once|at_most_once"`
	Ambiguous       string        `yaml:"ambiguous" check:"oneof=resend|unknown"` // at_most_once: unknown in any case
	DefaultPriority string        `yaml:"default_priority" check:"oneof=critical|high|medium|low|bulk"`
	GreatestAge     time.Duration `yaml:"greatest_age" check:"min=1s,max=720h"`
	CriticalSenders []string      `yaml:"critical_senders"` // empty = no sender, "*" = every sender
	IgnoreBlocked   bool          `yaml:"ignore_blocked"`   // critical messages pass "blocked"
	Inbox           bool          `yaml:"inbox"`            // messages are kept for users who look for them
	InboxAfter      time.Duration `yaml:"inbox_after" check:"min=0s,max=87600h"`
	Journal         time.Duration `yaml:"journal" check:"min=0s,max=2160h"` // for how long messages are found by user; 0 = not at all
	Shed            Shed          `yaml:"shed"`
}

// Inbox says how messages are kept for users who look for them: by workers for lanes that
// say so, and by gateways, which show them.
type Inbox struct {
	TTL         time.Duration `yaml:"ttl" check:"min=24h,max=2160h"`
	Concurrency int           `yaml:"concurrency" check:"min=1,max=1024"`
}

// KeepsInboxes reports whether a lane keeps messages for users who look for them.
func (c *Config) KeepsInboxes() bool {
	return slices.ContainsFunc(c.Lanes, func(l Lane) bool { return l.Inbox })
}

// KeepsJournals reports whether messages of a lane are found by user.
func (c *Config) KeepsJournals() bool { return c.LongestJournal() > 0 }

// LongestJournal is for how long messages of some lane are found by user; 0 = of none.
func (c *Config) LongestJournal() (longest time.Duration) {
	for _, l := range c.Lanes {
		longest = max(longest, l.Journal)
	}
	return longest
}

// Shed says how many of a lane's records may wait to be sent before new ones of a
// priority end SHED. Critical ones never do.
type Shed struct {
	Enabled bool `yaml:"enabled"`
	High    int  `yaml:"high" check:"min=1,max=1000000000"`
	Medium  int  `yaml:"medium" check:"min=1,max=1000000000"`
	Low     int  `yaml:"low" check:"min=1,max=1000000000"`
	Bulk    int  `yaml:"bulk" check:"min=1,max=1000000000"`
}

const everySender = "*"

// Once reports whether the lane commits before it sends.
func (l *Lane) Once() bool { return l.Mode == AtMostOnce }

// Replaces reports whether a repeated send is to replace the first on the
// screen.
func (l *Lane) Replaces() bool { return l.Mode == EffectivelyOnce }

// DropsAmbiguous reports whether a send of unknown outcome ends UNKNOWN instead
// of being repeated.
func (l *Lane) DropsAmbiguous() bool { return l.Once() || l.Ambiguous == AmbiguousUnknown }

// MayBeCritical is the set of senders that may use priority critical in this
// lane; nil means every sender.
func (l *Lane) MayBeCritical() map[string]bool {
	senders := make(map[string]bool, len(l.CriticalSenders))
	for _, s := range l.CriticalSenders {
		if s == everySender {
			return nil
		}
		senders[s] = true
	}
	return senders
}

// The delivery modes of a lane (docs/delivery.md).
const (
	AtLeastOnce     = "at_least_once"    // may repeat a push after a hard kill, loses none
	EffectivelyOnce = "effectively_once" // the same, and a repeat replaces the first on the screen
	AtMostOnce      = "at_most_once"     // never repeats, may lose what is in flight at a hard kill
)

// AmbiguousUnknown ends a send of unknown outcome instead of repeating it.
const AmbiguousUnknown = "unknown"

// Batch bounds what is read at once and what is open at a time.
type Batch struct {
	Records          int           `yaml:"records" check:"min=1,max=100000"`
	Bytes            Bytes         `yaml:"bytes" check:"min=128KiB,max=1GiB"`
	Linger           time.Duration `yaml:"linger" check:"min=0s,max=10s"`
	OpenPerPartition int           `yaml:"open_per_partition" check:"min=1,max=1000"`
	OpenRecords      int           `yaml:"open_records" check:"min=1,max=100000000"`
	Workers          int           `yaml:"workers" check:"min=1,max=256"`
}

// Window is W: the records of one partition that may be open at a time, and
// so the most to confirm after an assignment.
func (b *Batch) Window() int { return b.Records * b.OpenPerPartition }

// Dedupe sizes the Bloom filters.
type Dedupe struct {
	Window     time.Duration `yaml:"window" check:"min=1h,max=720h"`
	Windows    int           `yaml:"windows" check:"min=2,max=2"`
	Capacity   int64         `yaml:"capacity" check:"min=10000,max=100000000000"`
	ErrorRate  float64       `yaml:"error_rate" check:"min=0.000001,max=0.1"`
	AddTimeout time.Duration `yaml:"add_timeout" check:"min=10ms,max=1m"`
}

// Preferences say how what users prefer is applied.
type Preferences struct {
	DefaultZone      string   `yaml:"default_zone" check:"required,zone"`
	OptInTypes       []string `yaml:"opt_in_types"`      // sent only to users who agreed
	PromotionalTypes []string `yaml:"promotional_types"` // to which the hours of Countries apply
	DropTypes        []string `yaml:"drop_types"`        // not kept for later in quiet hours
}

// Country says what holds for users there.
type Country struct {
	Country string  `yaml:"country" check:"required,country"` // AnyCountry: every other
	Zone    string  `yaml:"zone" check:"zone"`                // of users whose own is not known; empty = the default
	Hours   []Hours `yaml:"hours"`
}

// AnyCountry stands for all countries that are not listed, and for none known.
const AnyCountry = "*"

// Hours are quiet for promotional types.
type Hours struct {
	From  string   `yaml:"from" check:"required,clock"`
	To    string   `yaml:"to" check:"required,clock"`
	Days  []string `yaml:"days" check:"oneof=mon|tue|wed|thu|fri|sat|sun"` // on which they begin; empty = all
	Types []string `yaml:"types"`                                          // empty = all promotional
}

// Send bounds what is in flight to the providers.
type Send struct {
	Deadline time.Duration `yaml:"deadline" check:"min=100ms,max=5m"`
	Drain    time.Duration `yaml:"drain" check:"min=200ms,max=30m"`
	InFlight int           `yaml:"in_flight" check:"min=1,max=1000000"`
	Recheck  time.Duration `yaml:"recheck" check:"min=1s,max=1h"`
	// FleetRate is how many sends a second all workers make together; 0 = no limit.
	FleetRate int `yaml:"fleet_rate" check:"min=0,max=1000000000"`
	// ReloadKeys is how often the files of keys and certificates are read again; 0 = never.
	ReloadKeys time.Duration `yaml:"reload_keys" check:"min=0s,max=1h"`
	APNS       Pool          `yaml:"apns"`
	FCM        Pool          `yaml:"fcm"`
}

// Pool is the connections to one route.
type Pool struct {
	Connections int `yaml:"connections" check:"min=1,max=1000"`
	Streams     int `yaml:"streams" check:"min=1,max=10000"`
}

// Status says how status rows are gathered into batches.
type Status struct {
	Flush          time.Duration `yaml:"flush" check:"min=1ms,max=1s"`
	Rows           int           `yaml:"rows" check:"min=1,max=10000"`
	Unacknowledged int           `yaml:"unacknowledged" check:"min=1,max=1000000"`
}

// Retries says how often and when a send is retried.
type Retries struct {
	Max        int             `yaml:"max" check:"min=0,max=100"`
	Tiers      []time.Duration `yaml:"tiers" check:"required,min=1s,max=24h"` // growing
	DeferTiers []time.Duration `yaml:"defer_tiers" check:"min=1s,max=24h"`    // between the first tier and deferral
	Deferral   time.Duration   `yaml:"deferral" check:"min=1s,max=24h"`       // the longest tier
}

// Longest is the longest time that all retries can take together.
func (r *Retries) Longest() (sum time.Duration) {
	if len(r.Tiers) == 0 {
		return 0
	}
	for attempt := range r.Max {
		sum += r.Tiers[min(attempt, len(r.Tiers)-1)]
	}
	return sum
}

// Gates say when a route is stopped, how it is opened again, and what its
// retries may cost. Each worker judges its routes by itself; what a provider
// asks for is shared with the other workers.
type Gates struct {
	Window       time.Duration `yaml:"window" check:"min=1s,max=10m"`
	Answers      int           `yaml:"answers" check:"min=1,max=1000000"`
	Share        float64       `yaml:"share" check:"min=0.01,max=0.99"`
	Failures     int           `yaml:"failures" check:"min=0,max=1000"`
	FirstPause   time.Duration `yaml:"first_pause" check:"min=10ms,max=1h"`
	HaltPause    time.Duration `yaml:"halt_pause" check:"min=10ms,max=1h"`
	LongestPause time.Duration `yaml:"longest_pause" check:"min=10ms,max=24h"`
	FirstProbes  int           `yaml:"first_probes" check:"min=1,max=100000"`
	FullProbes   int           `yaml:"full_probes" check:"min=1,max=100000"`
	ProbeTimeout time.Duration `yaml:"probe_timeout" check:"min=100ms,max=10m"`
	ProbeWait    time.Duration `yaml:"probe_wait" check:"min=0s,max=1m"`
	Together     bool          `yaml:"together"`
	HoldAfter    time.Duration `yaml:"hold_after" check:"min=10ms,max=1h"`
	HoldSpan     time.Duration `yaml:"hold_span" check:"min=1s,max=1h"`
	Retries      Budget        `yaml:"retries"`
	DeadLetters  Budget        `yaml:"dead_letters"`
}

// Budget is a bucket of tokens that successes fill.
type Budget struct {
	Share float64 `yaml:"share" check:"min=0.000001,max=1"`
	Floor float64 `yaml:"floor" check:"min=0.01,max=1000000"`
	Burst float64 `yaml:"burst" check:"min=1,max=10000000"`
}

// Rates say how answers change the rate of what a provider counts, which all
// workers share. The rates themselves are those of apps.
type Rates struct {
	OverQuota      float64       `yaml:"over_quota" check:"min=0.1,max=0.99"`
	Failing        float64       `yaml:"failing" check:"min=0.1,max=0.99"`
	FailingShare   float64       `yaml:"failing_share" check:"min=0.001,max=1"`
	FailingAnswers int           `yaml:"failing_answers" check:"min=1,max=1000000"`
	Floor          float64       `yaml:"floor" check:"min=0.01,max=1"`
	Growth         float64       `yaml:"growth" check:"min=1.01,max=10"`
	GrowthAfter    time.Duration `yaml:"growth_after" check:"min=1s,max=1h"`
	GrowthAnswers  int           `yaml:"growth_answers" check:"min=0,max=1000000"`
}

// App is one app of a producer's: what messages name as "app".
type App struct {
	Name string `yaml:"name" check:"required,name"`
	APNS *APNS  `yaml:"apns"` // nil = not on Apple's devices
	FCM  *FCM   `yaml:"fcm"`  // nil = not through Google
	// Accounts are those on platforms without a section here: settings by
	// "<platform>.<setting>". What they mean the provider's folder says.
	Accounts map[string]string `yaml:"accounts"`
}

// APNS is an app's account with Apple.
type APNS struct {
	Topic         string   `yaml:"topic" check:"required,bundle"`
	TeamID        string   `yaml:"team_id" check:"required,tenchars"`
	KeyID         string   `yaml:"key_id" check:"required,tenchars"`
	KeyFile       string   `yaml:"key_file" check:"required"`
	Environments  []string `yaml:"environments" check:"required,oneof=production|sandbox"`
	ProductionURL string   `yaml:"production_url" check:"required,url"`
	SandboxURL    string   `yaml:"sandbox_url" check:"required,url"`
	CAFile        string   `yaml:"ca_file"`
	Rate          int      `yaml:"rate" check:"min=0,max=1000000000"` // sends a second of the fleet to the topic; 0 = none
}

// URL is the server of an environment: "production" or "sandbox".
func (a *APNS) URL(environment string) string {
	if environment == "sandbox" {
		return a.SandboxURL
	}
	return a.ProductionURL
}

// FCM is an app's account with Google.
type FCM struct {
	Project            string `yaml:"project" check:"required,project"`
	ServiceAccountFile string `yaml:"service_account_file" check:"required"`
	URL                string `yaml:"url" check:"required,url"`
	CAFile             string `yaml:"ca_file"`
	Insecure           bool   `yaml:"insecure"`                          // a token endpoint without TLS is accepted
	Rate               int    `yaml:"rate" check:"min=0,max=1000000000"` // sends a second of the fleet to the project; 0 = none
}

// Events says what workers tell on push.events besides counts and failures.
type Events struct {
	State bool `yaml:"state"` // what each of them is at, once a second
}

// Traces says where the spans of sampled notifications go, if anywhere.
type Traces struct {
	Endpoint string  `yaml:"endpoint" check:"collector"` // URL of an OTLP/HTTP receiver, with its path; empty = no traces
	Ratio    float64 `yaml:"ratio" check:"min=0,max=1"`  // part of the notifications without a traceparent that is sampled
}

// Feedback says when a worker does not believe that tokens are dead, and keeps them.
type Feedback struct {
	Share   float64       `yaml:"share" check:"min=0.001,max=1"`
	Window  time.Duration `yaml:"window" check:"min=10s,max=24h"`
	Answers int           `yaml:"answers" check:"min=1,max=100000000"`
	// Quarantine is how long a campaign or sender is stopped whose tokens are nearly all
	// bad; 0 = its route is halted.
	Quarantine time.Duration `yaml:"quarantine" check:"min=0s,max=168h"`
	// QuarantineCampaigns is how many campaigns of a sender are stopped at a time when it is
	// stopped itself; 0 = never.
	QuarantineCampaigns int `yaml:"quarantine_campaigns" check:"min=0,max=100"`
}

// Registry configures `pushworker registry`, which keeps Redis filled from the
// topic push.users.
type Registry struct {
	Group          string        `yaml:"group" check:"required,name"`
	PrunePerMinute int           `yaml:"prune_per_minute" check:"min=1,max=100000000"`
	CheckInterval  time.Duration `yaml:"check_interval" check:"min=100ms,max=10m"`
	MaxStale       time.Duration `yaml:"max_stale" check:"min=1m,max=720h"`
	DevicesPerUser int           `yaml:"devices_per_user" check:"min=1,max=20000"`
	DevicesPerApp  int           `yaml:"devices_per_app" check:"min=1,max=20000"`
	Audiences      bool          `yaml:"audiences"`             // it notes in Cassandra who uses an app
	Listen         string        `yaml:"listen" check:"listen"` // its own HTTP listener; empty = none
}

// AudiencesGroup is the consumer group of push.users by which it is noted who uses an app.
func (r *Registry) AudiencesGroup() string { return r.Group + ".audiences" }

// Admin is the worker's own HTTP listener. PProf is the registry's too.
type Admin struct {
	Listen string `yaml:"listen" check:"listen"` // empty = none
	PProf  bool   `yaml:"pprof"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" check:"oneof=debug|info|warn|error"`
	Format string `yaml:"format" check:"oneof=json|text"`
}
