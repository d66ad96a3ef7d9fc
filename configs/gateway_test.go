package configs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestGatewayTogether(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ why, text, path, says string }{
		{"keys in plaintext over a network", `{listen: "10.0.0.1:8088"}`, "gateway.listen", "in plaintext"},
		{"on all addresses, which are some of a network", `{listen: ":8088"}`, "gateway.listen", "in plaintext"},
		{"a CA of callers without TLS", `{tls: {client_ca_file: a.pem}}`, "gateway.tls.client_ca_file", "needs cert_file"},
		{"a certificate without its key", `{tls: {cert_file: a.pem}}`, "gateway.tls.cert_file", "together"},
		{"the port of the worker", `{listen: "127.0.0.1:9464"}`, "gateway.listen", "admin.listen"},
		{"its health on the registry's port", `{admin_listen: "127.0.0.1:9465"}`, "gateway.admin_listen", "registry.listen"},
		{"its health on its own port", `{admin_listen: "127.0.0.1:8088"}`, "gateway.admin_listen", "gateway.listen"},
		{"an answer that is cut off before Kafka's time is over", `{answer_timeout: 19s}`, "gateway.answer_timeout", "more than body_timeout"},
		{"a stop that cuts off what is under way", `{drain: 4s}`, "gateway.drain", "at least confirm"},
		{"a header that may take longer than the request", `{header_timeout: 16s}`, "gateway.header_timeout", "at most body_timeout"},
		{"a linger as long as the wait", `{confirm: 500ms, linger: 500ms}`, "gateway.linger", "less than confirm"},
		{"an unknown lane", `{lanes: [{service_type: otp, lane: kritical}]}`, "gateway.lanes[0].lane", "there is no lane kritical"},
		{"fewer records in flight than a page has", `{fanout: {page: 500, in_flight: 499}}`, "gateway.fanout.in_flight", "at least page"},
		{"health of fan-outs on the gateway's port", `{fanout: {admin_listen: "127.0.0.1:8088"}}`, "gateway.fanout.admin_listen", "gateway.listen"},
		{"a title of blanks in place of what is confidential", `{confidential: {title: " "}}`, "gateway.confidential.title", "want a text"},
		{"one with a line break", `{confidential: {title: "News\nfor you"}}`, "gateway.confidential.title", "without control characters"},
		{"fan-outs without topics", `{fanout: {enabled: true}}`, "gateway.fanout.enabled", "needs gateway.topics"},
		{"users of apps without fan-outs", `{audiences: true}`, "gateway.audiences", "needs gateway.fanout.enabled"},
		{"two lanes of one service type and mode", `{lanes: [{service_type: otp, lane: critical}, {service_type: otp, lane: transactional}]}`, "gateway.lanes[1].lane", "goes to gateway.lanes[0] already"},
		{"more an hour than a day", `{limits: {default: {hour: 100, day: 99}}}`, "gateway.limits.default.day", "at least the limit per hour, 100"},
		{"more a second than an hour, with a minute that has no limit", `{limits: {senders: [{sender: a, limits: {second: 100, hour: 99}}]}}`, "gateway.limits.senders[0].limits.hour", "never be used up"},
		{"two limits of one sender", `{limits: {senders: [{sender: a}, {sender: b}, {sender: a, limits: {day: 5}}]}}`, "gateway.limits.senders[2].sender", "senders[0] already"},
		{"a name that no sender can have", `{limits: {senders: [{sender: "a b"}]}}`, "gateway.limits.senders[0].sender", "letters, digits"},
		{"a name that would be another key in Redis", `{limits: {senders: [{sender: "a}"}]}}`, "gateway.limits.senders[0].sender", "letters, digits"},
		{"a negative limit", `{limits: {default: {minute: -1}}}`, "gateway.limits.default.minute", "at least 0"},
		{"a limit beyond what can be counted", `{limits: {default: {day: 1000000001}}}`, "gateway.limits.default.day", "at most 1000000000"},
		{"no gateway", `{limits: {gateways: 0}}`, "gateway.limits.gateways", "at least 1"},
	} {
		ps := problemsOf(t, "gateway: "+tt.text)
		if len(ps) != 1 || ps[0].Path != tt.path || !strings.Contains(ps[0].Message, tt.says) {
			t.Errorf("%s: got %v, want %s: … %s", tt.why, ps, tt.path, tt.says)
		}
	}
	for _, text := range []string{
		`{listen: "0.0.0.0:8088", insecure: true}`, `{listen: "0.0.0.0:8088", tls: {cert_file: a, key_file: b}}`, `{listen: "localhost:8088"}`, `{listen: "[::1]:8088"}`,
		`{lanes: [{service_type: otp, lane: critical}, {service_type: sale, lane: promotional}]}`,
		`{limits: {default: {second: 5, day: 5}, senders: [{sender: free}, {sender: a.b_c-1, limits: {hour: 1000}}]}}`,
	} {
		if ps := problemsOf(t, "gateway: "+text); ps != nil {
			t.Errorf("%s: %v", text, ps)
		}
	}
	c, err := Parse([]byte(`gateway: {listen: "0.0.0.0:8088", insecure: true}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if notes := c.Insecure(); len(notes) != 1 || notes[0].Path != "gateway.insecure" {
		t.Errorf("told are %v", notes)
	}
}

// Without lanes of its own each lane's name is a service type, and of one service type
// several modes can be chosen.
func TestServiceLanes(t *testing.T) {
	t.Parallel()
	c := Default()
	if got := c.ServiceLanes(); len(got) != 3 || got[1] != (GatewayLane{"transactional", "transactional"}) {
		t.Errorf("by default %v", got)
	}
	text := "lanes: [{name: a, topic: a}, {name: b, topic: b, mode: at_most_once}]\ngateway: {lanes: [{service_type: x, lane: b}, {service_type: x, lane: a}]}"
	c, err := Parse([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.ServiceLanes(); len(got) != 2 || got[0].Lane != "b" || c.Lane(got[0].Lane).Mode != AtMostOnce {
		t.Errorf("configured are %v", got)
	}
}

func TestCheckGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := Default()
	c.Apps = []App{{Name: "shop", FCM: &FCM{ServiceAccountFile: "not opened"}}}
	c.Gateway.KeysFile, c.Gateway.ReceiptsFile = file("keys.json", "{}"), file("receipts", strings.Repeat("x", 32))
	if err := c.CheckGateway(); err != nil {
		t.Fatalf("all is there: %v", err)
	}
	wrong := *c
	wrong.Apps = nil
	wrong.Gateway.KeysFile, wrong.Gateway.ReceiptsFile = "", ""
	wrong.Gateway.TLS = ServerTLS{CertFile: filepath.Join(dir, "none.pem"), KeyFile: "none", ClientCAFile: file("empty.pem", "no certificate")}
	var ps Problems
	if !errors.As(wrong.CheckGateway(), &ps) {
		t.Fatal("nothing is there, and it is fine")
	}
	for _, path := range []string{"apps", "gateway.keys_file", "gateway.receipts_file", "gateway.tls", "gateway.tls.client_ca_file"} {
		if !slices.ContainsFunc(ps, func(p Problem) bool { return p.Path == path }) {
			t.Errorf("no problem of %s: %v", path, ps)
		}
	}
	reads := *c
	reads.Redis.PasswordFile = filepath.Join(dir, "none.password")
	if err := reads.CheckGateway(); err != nil {
		t.Errorf("a file of Redis that it does not open: %v", err)
	}
	reads.Gateway.Registry = true
	if !errors.As(reads.CheckGateway(), &ps) || len(ps) != 1 || ps[0].Path != "redis.password_file" {
		t.Errorf("and one that it opens: %v", ps)
	}
	reads.Gateway.Registry, reads.Gateway.Limits.Senders = false, []GatewaySender{{"a", SenderLimits{Day: 1}}}
	if !errors.As(reads.CheckGateway(), &ps) || len(ps) != 1 || ps[0].Path != "redis.password_file" {
		t.Errorf("and for limits: %v", ps)
	}
	reads.Gateway.Limits.Senders[0].Limits.Day = 0
	if err := reads.CheckGateway(); err != nil {
		t.Errorf("limits of nobody: %v", err)
	}
	wrong.Gateway.KeysFile = filepath.Join(dir, "none.json")
	if err := wrong.CheckGateway(); err == nil || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("keys that are not there: %v", err)
	}
}

// A process of fan-outs reads the secret of receipts only where it signs click tokens.
func TestCheckFanoutWithClickTokens(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Gateway.Topics, c.Gateway.Fanout.Enabled = true, true
	if err := c.CheckFanout(); err != nil {
		t.Errorf("without tokens: %v", err)
	}
	c.Gateway.Clicks.Enabled = true
	for _, path := range []string{"", filepath.Join(t.TempDir(), "none")} {
		c.Gateway.ReceiptsFile = path
		var ps Problems
		if !errors.As(c.CheckFanout(), &ps) || len(ps) != 1 || ps[0].Path != "gateway.receipts_file" {
			t.Errorf("with %q: %v", path, ps)
		}
	}
}

// Fan-outs have topics and groups of their own.
func TestLanesBesideFanouts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, path string }{
		{"lanes: [{name: a, topic: push.fanout}]\ngateway: {topics: true, fanout: {enabled: true}}", "lanes[0].topic"},
		{"lanes: [{name: push.fanout.chunks.a, topic: a}]\ngateway: {topics: true, fanout: {enabled: true}}", "lanes[0].name"},
		{"lanes: [{name: push.fanout.chunks.a, topic: push.fanout}]", ""},
		{"lanes: [{name: push.fanouts, topic: push.fanouts}]\ngateway: {topics: true, fanout: {enabled: true}}", ""},
	} {
		ps := problemsOf(t, tt.text)
		if (tt.path == "") != (len(ps) == 0) || len(ps) > 0 && ps[0].Path != tt.path {
			t.Errorf("%s: %v", tt.text, ps)
		}
	}
	c := Default()
	if err := c.CheckFanout(); err == nil || !strings.Contains(err.Error(), "gateway.fanout.enabled") {
		t.Errorf("without fan-outs: %v", err)
	}
	if c.Gateway.Fanout.Enabled = true; c.CheckFanout() != nil {
		t.Errorf("with fan-outs: %v", c.CheckFanout())
	}
	c.Redis.PasswordFile = filepath.Join(t.TempDir(), "none.password")
	if err := c.CheckFanout(); err != nil {
		t.Errorf("a file of Redis that it does not open: %v", err)
	}
	c.Gateway.Limits.Default.Recipients = 1
	var ps Problems
	if !errors.As(c.CheckFanout(), &ps) || len(ps) != 1 || ps[0].Path != "redis.password_file" {
		t.Errorf("and one that it opens for limits of receivers: %v", ps)
	}
}
