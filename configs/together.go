package configs

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkTogether finds contradictions between values.
func (c *Config) checkTogether(ps *Problems) {
	c.checkTimes(ps)
	c.checkConnections(ps)
	c.checkBounds(ps)
	c.checkLanes(ps)
	c.checkRetries(ps)
	c.checkGates(ps)
	c.checkCountries(ps)
	c.checkRules(ps)
	c.checkSenderRules(ps)
	c.checkSegments(ps)
	c.checkLayout(ps)
	c.checkApps(ps)
	c.checkListeners(ps)
	c.checkGateway(ps)
	for _, l := range c.Lanes {
		if c.Registry.Group == c.Kafka.LaneGroup(l.Name) || c.Registry.Group == c.Kafka.RetryGroup(l.Name) {
			ps.add("registry.group", "is also the group of lane %s", l.Name)
		}
		if own := c.Registry.AudiencesGroup(); c.Registry.Audiences && (own == c.Kafka.LaneGroup(l.Name) || own == c.Kafka.RetryGroup(l.Name)) {
			ps.add("registry.group", "with .audiences behind it is also the group of lane %s", l.Name)
		}
	}
}

// checkListeners: a worker and a registry may run on one host by one file.
func (c *Config) checkListeners(ps *Problems) {
	if collide(c.Admin.Listen, c.Registry.Listen) {
		ps.add("registry.listen", "must not use the port of admin.listen, %s: a worker and a registry could not run on the same host", c.Admin.Listen)
	}
	if !c.Admin.PProf {
		return
	}
	for _, l := range []struct{ path, at string }{{"admin.listen", c.Admin.Listen}, {"registry.listen", c.Registry.Listen}} {
		if host, _, err := net.SplitHostPort(l.at); l.at != "" && (err != nil || !isLoopback(host)) {
			ps.add("admin.pprof", "must be false unless %s is a loopback address: profiles reveal what is in memory", l.path)
			return
		}
	}
}

// collide reports whether two listeners would use the same address.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || !samePort(portA, portB) {
		return false
	}
	all := func(host string) bool { return host == "" || net.ParseIP(host).IsUnspecified() }
	local := func(name, host string) bool { return name == "localhost" && isLoopback(host) }
	return hostA == hostB || all(hostA) || all(hostB) || local(hostA, hostB) || local(hostB, hostA)
}

// samePort compares ports as the system reads them; 0 means any free port.
func samePort(a, b string) bool {
	numberA, errA := strconv.Atoi(a)
	numberB, errB := strconv.Atoi(b)
	if errA != nil || errB != nil { // names
		return a == b
	}
	return numberA == numberB && numberA != 0
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// LeaveTimeout is the part of send.drain that a stopping worker reserves for
// leaving its groups.
const LeaveTimeout = time.Second

// checkTimes checks which times must be over before others run out.
func (c *Config) checkTimes(ps *Problems) {
	k := &c.Kafka
	if k.SessionTimeout >= k.RebalanceTimeout {
		ps.add("kafka.session_timeout", "%s must be less than kafka.rebalance_timeout, %s", k.SessionTimeout, k.RebalanceTimeout)
	}
	// When the worker stops or a partition is revoked, sends under way end by
	// their deadline, their rows are written, the offset is committed and the
	// group is left: in that order, and before the group evicts us.
	if sum := c.Send.Deadline + c.Cassandra.Timeout + k.CommitTimeout + LeaveTimeout; sum > c.Send.Drain {
		ps.add("send.drain", "%s must be at least send.deadline + cassandra.timeout + kafka.commit_timeout + %s to leave the group, %s + %s + %s + %s = %s",
			c.Send.Drain, LeaveTimeout, c.Send.Deadline, c.Cassandra.Timeout, k.CommitTimeout, LeaveTimeout, sum)
	}
	if sum := c.Send.Drain + k.CommitTimeout; sum >= k.RebalanceTimeout {
		ps.add("kafka.rebalance_timeout", "%s must be more than send.drain + kafka.commit_timeout, %s + %s = %s",
			k.RebalanceTimeout, c.Send.Drain, k.CommitTimeout, sum)
	}
	// A status row must outlive every copy of its record: otherwise the copy is
	// sent.
	horizon, age, retries := c.Dedupe.Window*time.Duration(c.Dedupe.Windows), c.longestAge(), c.Retries.Longest()
	longest := max(age, retries)
	if need := horizon + k.Topics.Retention + longest; c.Cassandra.TTL < need {
		ps.add("cassandra.ttl", "%s must be at least dedupe.window x dedupe.windows + kafka.topics.retention + the longest retry, %s + %s + %s = %s",
			c.Cassandra.TTL, horizon, k.Topics.Retention, longest, need)
	}
	if k.Topics.Retention < age {
		ps.add("kafka.topics.retention", "%s must be at least the greatest age of every lane, %s: Kafka would delete records that may still be sent",
			k.Topics.Retention, age)
	}
}

// longestAge is the largest greatest_age of all lanes.
func (c *Config) longestAge() (age time.Duration) {
	for _, l := range c.Lanes {
		age = max(age, l.GreatestAge)
	}
	return age
}

func (c *Config) checkConnections(ps *Problems) {
	c.Kafka.TLS.check(ps, "kafka.tls")
	c.Redis.TLS.check(ps, "redis.tls")
	c.Cassandra.TLS.check(ps, "cassandra.tls")
	c.checkPlaintexts(ps)
	switch s := &c.Kafka.SASL; {
	case s.Mechanism == "" && (s.Username != "" || s.PasswordFile != ""):
		ps.add("kafka.sasl.mechanism", "is required with a username or a password_file")
	case s.Mechanism == "":
	case s.Username == "":
		ps.add("kafka.sasl.username", "is required with a mechanism")
	case s.PasswordFile == "":
		ps.add("kafka.sasl.password_file", "is required with a mechanism")
	}
	if c.Redis.Username != "" && c.Redis.PasswordFile == "" {
		ps.add("redis.password_file", "is required with a username")
	}
	if !c.Redis.Cluster && len(c.Redis.Addresses) > 1 {
		ps.add("redis.addresses", "must be one address unless redis.cluster is true")
	}
	if (c.Cassandra.Username == "") != (c.Cassandra.PasswordFile == "") {
		ps.add("cassandra.password_file", "and cassandra.username must be set together")
	}
	if len(c.Cassandra.Replication) > 0 && c.Cassandra.Replication["class"] == "" {
		ps.add("cassandra.replication", "needs a class, such as NetworkTopologyStrategy")
	}
	for i, a := range c.Kafka.Brokers {
		if slices.Contains(c.Kafka.Brokers[:i], a) {
			ps.add("kafka.brokers["+strconv.Itoa(i)+"]", "is listed twice")
		}
	}
}

func (c *Config) checkBounds(ps *Problems) {
	b := &c.Batch
	// After a crash the next owner confirms the first W records of a partition:
	// that must cover what may have been sent.
	if b.Window() < c.Send.InFlight {
		ps.add("send.in_flight", "%d must be at most batch.records x batch.open_per_partition, %d x %d = %d",
			c.Send.InFlight, b.Records, b.OpenPerPartition, b.Window())
	}
	if b.OpenRecords < b.Records {
		ps.add("batch.open_records", "%d must be at least batch.records, %d: otherwise nothing is ever read", b.OpenRecords, b.Records)
	}
	if c.Status.Unacknowledged < c.Status.Rows {
		ps.add("status.unacknowledged", "%d must be at least status.rows, %d: otherwise no batch is ever full", c.Status.Unacknowledged, c.Status.Rows)
	}
}

// reserved are topics that have a meaning of their own.
var reserved = []string{"push.users", "push.users.quarantine", "push.feedback", "push.events"}

func (c *Config) checkLanes(ps *Problems) {
	names, topics := map[string]bool{}, map[string]bool{}
	for i, l := range c.Lanes {
		at := "lanes[" + strconv.Itoa(i) + "]"
		if names[l.Name] && l.Name != "" {
			ps.add(at+".name", "is also the name of another lane")
		}
		if topics[l.Topic] && l.Topic != "" {
			ps.add(at+".topic", "is also the topic of another lane")
		}
		names[l.Name], topics[l.Topic] = true, true
		for _, other := range c.Lanes {
			if c.Kafka.LaneGroup(l.Name) == c.Kafka.RetryGroup(other.Name) {
				ps.add(at+".name", "gives it the same consumer group as the retries of lane %s", other.Name)
			}
		}
		if slices.Contains(reserved, l.Topic) || strings.HasSuffix(l.Topic, ".dlq") || strings.HasSuffix(l.Topic, ".dlq.audit") ||
			strings.Contains(l.Topic, ".retry.") || strings.Contains(l.Topic, ".defer.") || strings.Contains(l.Topic, ".hold.") {
			ps.add(at+".topic", "is a name that the fleet uses for another topic")
		}
		if first := c.Retries.Tiers; l.GreatestAge > 0 && len(first) > 0 && l.GreatestAge <= first[0] {
			ps.add(at+".greatest_age", "%s must be more than the first of retries.tiers, %s: otherwise every retry is too late", l.GreatestAge, first[0])
		}
		if l.InboxAfter > 0 && !l.Inbox {
			ps.add(at+".inbox_after", "has no effect without inbox: true")
		}
		if l.Inbox && l.GreatestAge > c.Inbox.TTL-24*time.Hour {
			ps.add(at+".greatest_age", "%s must be a day less than inbox.ttl, %s: what comes late would not be there long enough to be read", l.GreatestAge, c.Inbox.TTL)
		}
		if l.Journal > 0 && l.Journal < 24*time.Hour {
			ps.add(at+".journal", "%s must be 0s or at least 24h: no day would be whole", l.Journal)
		}
		if slices.Contains(l.CriticalSenders, everySender) && len(l.CriticalSenders) > 1 {
			ps.add(at+".critical_senders", "must be either * alone or a list of senders")
		}
		if s := l.Shed; s.High < s.Medium || s.Medium < s.Low || s.Low < s.Bulk {
			ps.add(at+".shed", "high, medium, low and bulk must not grow in this order: what is more urgent is shed later")
		}
	}
}

// checkCountries: hours of a type that is not promotional never apply.
func (c *Config) checkCountries(ps *Problems) {
	listed := map[string]bool{}
	for i, country := range c.Countries {
		at := "countries[" + strconv.Itoa(i) + "]"
		if listed[country.Country] && country.Country != "" {
			ps.add(at+".country", "is listed twice")
		}
		listed[country.Country] = true
		for j, h := range country.Hours {
			at := at + ".hours[" + strconv.Itoa(j) + "]"
			for k, t := range h.Types {
				if len(c.Preferences.PromotionalTypes) > 0 && !slices.Contains(c.Preferences.PromotionalTypes, t) {
					ps.add(at+".types["+strconv.Itoa(k)+"]", "is not one of preferences.promotional_types")
				}
			}
		}
	}
}

// checkRetries: each attempt waits longer than the one before, and the tier beyond them
// is for what waits longer than any attempt.
func (c *Config) checkRetries(ps *Problems) {
	longest := time.Duration(0)
	for i, d := range c.Retries.Tiers {
		if d <= longest {
			ps.add("retries.tiers["+strconv.Itoa(i)+"]", "%s must be more than the previous tier", d)
		}
		longest = max(longest, d)
	}
	if c.Retries.Deferral <= longest {
		ps.add("retries.deferral", "%s must be more than every tier, %s", c.Retries.Deferral, longest)
	}
	for i, d := range c.Retries.DeferTiers {
		if len(c.Retries.Tiers) > 0 && d <= c.Retries.Tiers[0] || d >= c.Retries.Deferral {
			ps.add("retries.defer_tiers["+strconv.Itoa(i)+"]", "%s must be between the first of retries.tiers and retries.deferral", d)
		}
	}
}

// checkGates: a probe has its answer, or none, before it is judged, and what is
// the longest is longest.
func (c *Config) checkGates(ps *Problems) {
	g := &c.Gates
	if g.ProbeTimeout <= c.Send.Deadline {
		ps.add("gates.probe_timeout", "%s must be more than send.deadline, %s: otherwise a probe in flight counts as failed", g.ProbeTimeout, c.Send.Deadline)
	}
	if first := max(g.FirstPause, g.HaltPause); g.LongestPause < first {
		ps.add("gates.longest_pause", "%s must be at least gates.first_pause and gates.halt_pause, %s", g.LongestPause, first)
	}
	if g.HoldSpan < g.HoldAfter {
		ps.add("gates.hold_span", "%s must be at least gates.hold_after, %s: otherwise nothing is ever held", g.HoldSpan, g.HoldAfter)
	}
}

// checkLayout: every id must have exactly one bucket, for ever.
func (c *Config) checkLayout(ps *Problems) {
	for i, l := range c.Cassandra.Layout {
		at := "cassandra.layout[" + strconv.Itoa(i) + "]"
		switch {
		case i == 0 && !l.Since.IsZero():
			ps.add(at+".since", "must not be set for the first layout: older ids would have none")
		case i > 0 && !l.Since.After(c.Cassandra.Layout[i-1].Since):
			ps.add(at+".since", "must be later than that of the previous layout")
		case i > 0 && l.Since.Unix() <= 0:
			ps.add(at+".since", "must be later than 1970")
		}
		if l.Slice%time.Second != 0 {
			ps.add(at+".slice", "must be whole seconds")
		}
	}
}

func (c *Config) checkApps(ps *Problems) {
	names := map[string]bool{}
	for i, a := range c.Apps {
		at := "apps[" + strconv.Itoa(i) + "]"
		if names[a.Name] && a.Name != "" {
			ps.add(at+".name", "is also the name of another app")
		}
		names[a.Name] = true
		for _, earlier := range c.Apps[:i] {
			if a.FCM != nil && earlier.FCM != nil && a.FCM.Project == earlier.FCM.Project && a.FCM.Rate != earlier.FCM.Rate {
				ps.add(at+".fcm.rate", "must be that of app %s, %d: they share a project, which has one rate", earlier.Name, earlier.FCM.Rate)
			}
			if o := earlier.APNS; a.APNS != nil && o != nil && a.APNS.TeamID == o.TeamID && a.APNS.Topic == o.Topic && a.APNS.Rate != o.Rate {
				ps.add(at+".apns.rate", "must be that of app %s, %d: they share a topic, which has one rate", earlier.Name, o.Rate)
			}
		}
		if a.APNS == nil && a.FCM == nil && len(a.Accounts) == 0 {
			ps.add(at, "needs apns, fcm or accounts: its messages could not be sent anywhere")
		}
		for _, key := range slices.Sorted(maps.Keys(a.Accounts)) {
			if problem := accountProblem(key); problem != "" {
				ps.add(at+".accounts."+key, "%s", problem)
			}
		}
		if a.APNS == nil {
			continue
		}
		for j, e := range a.APNS.Environments {
			if slices.Contains(a.APNS.Environments[:j], e) {
				ps.add(at+".apns.environments["+strconv.Itoa(j)+"]", "is listed twice")
			}
		}
	}
}
