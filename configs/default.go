package configs

import "time"

// Default is the value of every setting that is not given: the content of
// worker.yaml, which gives the reasons.
func Default() *Config {
	return &Config{
		Kafka: Kafka{
			Brokers:          []string{"127.0.0.1:9092"},
			ClientID:         "pushfleet",
			Group:            "pushfleet",
			SessionTimeout:   10 * time.Second,
			RebalanceTimeout: time.Minute,
			CommitTimeout:    5 * time.Second,
			CommitInterval:   200 * time.Millisecond,
			FirstStart:       "earliest",
			Protocol:         "classic",
			Balancer:         "cooperative-sticky",
			JoinWithin:       time.Second,
			Topics:           Topics{Partitions: 18, Replication: -1, Retention: 7 * 24 * time.Hour},
		},
		Redis: Redis{
			Addresses:    []string{"127.0.0.1:6379"},
			DialTimeout:  2 * time.Second,
			ReadTimeout:  2 * time.Second,
			WriteTimeout: 2 * time.Second,
			Pool:         16,
		},
		Cassandra: Cassandra{
			Hosts:       []string{"127.0.0.1:9042"},
			Keyspace:    "pushfleet",
			Consistency: "LOCAL_QUORUM",
			Timeout:     5 * time.Second,
			Connections: 2,
			Concurrency: 32,
			TTL:         30 * 24 * time.Hour,
			Replication: map[string]string{"class": "SimpleStrategy", "replication_factor": "1"},
			Layout:      []Layout{Layout{}.defaults()},
		},
		Lanes:       defaultLanes(),
		Batch:       Batch{Records: 10_000, Bytes: 8 << 20, Linger: 20 * time.Millisecond, OpenPerPartition: 4, OpenRecords: 200_000, Workers: 4},
		Dedupe:      Dedupe{Window: 6 * time.Hour, Windows: 2, Capacity: 20_000_000, ErrorRate: 0.001, AddTimeout: 2 * time.Second},
		Preferences: Preferences{DefaultZone: "UTC"},
		Limits:      Limits{StateVersion: 1, Devices: DeviceLimits{Backend: "redis", Consistency: "LOCAL_ONE", Concurrency: 128}},
		Segments:    Segments{Interval: 30 * time.Second, MaxBytes: 4 << 30, S3Region: "us-east-1"},
		Send: Send{
			Deadline:   10 * time.Second,
			Drain:      25 * time.Second,
			Recheck:    30 * time.Second,
			ReloadKeys: 5 * time.Second,
			InFlight:   10_000,
			APNS:       Pool{Connections: 10, Streams: 1000},
			FCM:        Pool{Connections: 20, Streams: 100},
		},
		Status:  Status{Flush: 50 * time.Millisecond, Rows: 200, Unacknowledged: 5000},
		Retries: Retries{Max: 3, Tiers: []time.Duration{30 * time.Second, 5 * time.Minute, 30 * time.Minute}, DeferTiers: []time.Duration{2 * time.Minute}, Deferral: 2 * time.Hour},
		Gates: Gates{
			Window: 10 * time.Second, Answers: 20, Share: 0.5, Failures: 5,
			FirstPause: time.Second, HaltPause: 30 * time.Second, LongestPause: time.Minute,
			FirstProbes: 3, FullProbes: 128, ProbeTimeout: 15 * time.Second, ProbeWait: 2 * time.Second, Together: true,
			HoldAfter: 5 * time.Second, HoldSpan: time.Minute,
			Retries:     Budget{Share: 0.1, Floor: 10, Burst: 2000},
			DeadLetters: Budget{Share: 0.01, Floor: 1, Burst: 100},
		},
		Feedback: Feedback{Share: 0.2, Window: 5 * time.Minute, Answers: 1000, Quarantine: time.Hour, QuarantineCampaigns: 20},
		Rates: Rates{OverQuota: 0.8, Failing: 0.5, FailingShare: 0.05, FailingAnswers: 100, Floor: 0.1,
			Growth: 1.1, GrowthAfter: time.Minute, GrowthAnswers: 100},
		Registry: Registry{Group: "pushfleet.registry", PrunePerMinute: 6000, CheckInterval: time.Second, MaxStale: 20 * time.Hour,
			DevicesPerUser: 100, DevicesPerApp: 20, Listen: "127.0.0.1:9465"},
		Inbox: Inbox{TTL: 720 * time.Hour, Concurrency: 32},
		Gateway: Gateway{Listen: "127.0.0.1:8088", AdminListen: "127.0.0.1:9466", ReloadKeys: 5 * time.Second, Repeats: 10 * time.Minute, Limits: GatewayLimits{Gateways: 4}, InboxWaits: 10_000, Confidential: Confidential{Title: "New message"}, Clicks: Clicks{Valid: 720 * time.Hour, Kept: 2160 * time.Hour, Rate: 1000},
			Confirm: 5 * time.Second, Linger: 3 * time.Millisecond, BufferedRecords: 50_000, BufferedBytes: 64 << 20, Status: 5 * time.Second,
			MessageBytes: 128 << 10, BatchLines: 1000, BatchBytes: 4 << 20, Receipts: 1000,
			Requests: 4000, Batches: 16, Connections: 10_000, HeaderBytes: 16 << 10,
			HeaderTimeout: 5 * time.Second, BodyTimeout: 15 * time.Second, AnswerTimeout: 30 * time.Second, IdleTimeout: time.Minute, Drain: 10 * time.Second,
			Fanout:    Fanout{AdminListen: "127.0.0.1:9467", Lag: 1_000_000, LagTime: 2 * time.Second, OpenChunks: 16, AtOnce: 4, Page: 2000, InFlight: 20_000, InFlightBytes: 16 << 20},
			Webhooks:  Webhooks{AdminListen: "127.0.0.1:9468", Reload: 5 * time.Second, Timeout: 10 * time.Second, AtOnce: 16, Window: 256, Keep: 24 * time.Hour},
			Dashboard: TeamDashboard{Listen: "127.0.0.1:8095"}},
		Events: Events{State: true},
		Admin:  Admin{Listen: "127.0.0.1:9464"},
		Log:    Log{Level: "info", Format: "json"},
	}
}

func defaultLanes() []Lane {
	var lanes []Lane
	for _, name := range []string{"critical", "transactional", "promotional"} {
		l := Lane{Name: name, Topic: "push." + name}.defaults()
		if name == "critical" {
			l.GreatestAge = 10 * time.Minute
		}
		lanes = append(lanes, l)
	}
	return lanes
}

// List elements have defaults of their own, which the reader gets by these
// methods before it reads an element.

func (l Lane) defaults() Lane {
	l.Mode, l.Ambiguous, l.DefaultPriority, l.GreatestAge = AtLeastOnce, "resend", "medium", 24*time.Hour
	l.Shed = Shed{High: 100_000, Medium: 50_000, Low: 20_000, Bulk: 10_000}
	return l
}

func (l Layout) defaults() Layout {
	l.Slice, l.Shards = 10*time.Second, 16
	return l
}

func (r SenderRule) defaults() SenderRule {
	r.Algorithm, r.Wait = "token_bucket", time.Hour
	return r
}

func (r Rule) defaults() Rule {
	r.Per = "user"
	return r
}

func (a APNS) defaults() APNS {
	a.Environments = []string{"production"}
	a.ProductionURL, a.SandboxURL = "https://api.push.apple.com", "https://api.sandbox.push.apple.com"
	return a
}

func (f FCM) defaults() FCM {
	f.URL, f.Rate = "https://fcm.googleapis.com", 10_000
	return f
}
