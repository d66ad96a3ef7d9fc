package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/rightstest"
)

// The commands grant exactly the table's rights to the given principals, and a
// shell takes them unchanged.
func TestTopicsACLs(t *testing.T) {
	f := startFleet(t, false)
	out := f.ok("topics", "acls", "--worker", "User:CN=a worker's", "--producer", "User:shop", "--producer", "User:auth", "--tool", "printf '<%s>'")
	var shown bytes.Buffer
	cmd := exec.Command("sh", "-e")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(out), &shown, &shown
	if err := cmd.Run(); err != nil {
		t.Fatalf("a shell does not take\n%s%v\n%s", out, err, &shown)
	}
	for _, want := range []string{
		"<--add><--allow-principal><User:CN=a worker's><--operation><Read><--operation><Write><--topic><push.critical.retry.30s>",
		"<--add><--allow-principal><User:CN=a worker's><--operation><Read><--group><pushfleet.critical>",
		"<--add><--allow-principal><User:pushregistry><--operation><DescribeConfigs><--operation><Read><--operation><Write><--topic><push.users>",
		"<--add><--allow-principal><User:auth><--operation><Write><--topic><push.critical><--topic><push.transactional><--topic><push.promotional>",
	} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("printed\n%s\nwant %s", out, want)
		}
	}
	if usual := f.ok("topics", "acls"); !strings.HasPrefix(usual, "kafka-acls.sh --bootstrap-server 127.0.0.1:") || strings.Contains(usual, "producer") {
		t.Errorf("printed\n%s", usual)
	}
	var rows []aclRow
	f.decode(&rows, "topics", "acls", "--reader", "User:grafana", "--dashboard", "User:board", "--redriver", "User:board")
	for _, want := range []aclRow{{"User:grafana", "reader", "topic", "push.events", []string{"Read"}}, {"User:board", "dashboard", "group", "pushfleet.critical.retry", []string{"Describe"}},
		{"User:board", "redriver", "topic", "push.critical.retry.30s", []string{"Write"}}} {
		if !slices.ContainsFunc(rows, func(r aclRow) bool { return fmt.Sprint(r) == fmt.Sprint(want) }) {
			t.Errorf("rows %+v, want %+v", rows, want)
		}
	}
	f.decode(&rows, "topics", "acls", "--gateway", "User:front")
	if want := (aclRow{"User:front", "gateway", "group", "pushfleet.critical", []string{"Describe"}}); !slices.ContainsFunc(rows, func(r aclRow) bool { return fmt.Sprint(r) == fmt.Sprint(want) }) {
		t.Errorf("rows %+v, want %+v", rows, want)
	}
	if exit, _, stderr := f.run("", "topics", "acls", "--webhooks", "User:hooks"); exit != exitUsage || !strings.Contains(stderr, "gateway.webhooks.senders") {
		t.Errorf("without webhooks: exit status %d, %s", exit, stderr)
	}
	if exit, _, stderr := f.run("", "topics", "acls", "--fanout", "User:front"); exit != exitUsage || !strings.Contains(stderr, "gateway.fanout.enabled") {
		t.Errorf("without fan-outs: exit status %d, %s", exit, stderr)
	}
	for _, bad := range []string{"shop", ":shop", "User:"} {
		if exit, _, stderr := f.run("", "topics", "acls", "--producer", bad); exit != exitUsage || !strings.Contains(stderr, "--producer") {
			t.Errorf("%q: exit status %d, %s", bad, exit, stderr)
		}
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// With exactly the rights of `topics acls`, every role can do its work, and
// none can do that of another.
func TestRightsAreEnough(t *testing.T) {
	cluster := rightstest.Start(t, configs.Default(), kfake.User("PLAIN", "nobody", rightstest.Password))
	f := &fleet{t: t, kafka: &embedded.Kafka{Cluster: cluster}, patience: patience}
	partitions := 3
	as := func(role wiring.Role, args ...string) (exit int, stdout, stderr string) {
		t.Helper()
		password := filepath.Join(t.TempDir(), "password")
		writeFile(t, password, rightstest.Password)
		f.config = configFile(t, fmt.Sprintf("kafka: {brokers: [%q], topics: {partitions: %d, replication: 1}, sasl: {mechanism: PLAIN, username: %s, password_file: %q, insecure: true}}\n",
			cluster.ListenAddrs()[0], partitions, role, password))
		return f.run("", args...)
	}
	can := func(role wiring.Role, args ...string) {
		t.Helper()
		if exit, _, stderr := as(role, args...); exit != exitDone {
			t.Errorf("%s, %v: exit status %d, %s", role, args, exit, stderr)
		}
	}
	options := func(role wiring.Role) kafka.Options {
		return kafka.Options{Brokers: cluster.ListenAddrs(), SASL: &kafka.SASL{Mechanism: kafka.Plain, User: string(role), Password: rightstest.Password}}
	}
	token := filepath.Join(t.TempDir(), "token")
	writeFile(t, token, "token-of-a-device")
	send := []string{"send", "--app", "shop", "--user", "u1"}

	can(wiring.Operator, "topics", "ensure")
	partitions = 4
	can(wiring.Operator, "topics", "ensure", "--add-partitions")
	can(wiring.Operator, send...)
	can(wiring.Producer, send...)

	// A worker: what it checks at its start, everything that it hands over, its
	// groups.
	c := configs.Default()
	admin, err := kafka.NewAdmin(options(wiring.Worker))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CheckTopics(t.Context(), wiring.TopicNames(c)...); err != nil {
		t.Fatalf("a worker's start: %v", err)
	}
	producer, err := kafka.NewProducer(options(wiring.Worker), kafka.ProducerOptions{Topic: laneTopic, Tiers: wiring.Tiers(c), DeferTiers: wiring.DeferTiers(c)})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	it := &pipeline.Item{Partition: push.Partition{Topic: laneTopic}, FirstSeen: push.At(time.Now()), Key: []byte("u1"), Value: []byte(`{"id":"n1","app":"shop","user_id":"u1"}`)}
	it.UserID = "u1"
	var hs []pipeline.Handover
	for to, tiers := range map[pipeline.Destination][]kafka.Tier{pipeline.ToRetry: wiring.Tiers(c), pipeline.ToDefer: wiring.DeferTiers(c)} {
		for _, tier := range tiers {
			hs = append(hs, pipeline.Handover{To: to, Item: it, NotBefore: time.Now().Add(tier.Delay)})
		}
	}
	hs = append(hs, pipeline.Handover{To: pipeline.ToHold, Item: it, Platform: push.APNS, NotBefore: time.Now()},
		pipeline.Handover{To: pipeline.ToHold, Item: it, Platform: push.FCM, NotBefore: time.Now()},
		pipeline.Handover{To: pipeline.ToDLQ, Item: it, Reason: push.RetriesUsed}, pipeline.Handover{To: pipeline.ToFeedback, Item: it},
		pipeline.Handover{To: pipeline.ToEvents, Event: []byte(`{"v":1,"source":"w","n":1}`)})
	if err := producer.Produce(t.Context(), hs); err != nil {
		t.Fatalf("a worker's hand-overs: %v", err)
	}
	consume := func(role wiring.Role, topic, group string) {
		t.Helper()
		consumer, err := kafka.NewConsumer(options(role), topic, group)
		if err != nil {
			t.Fatal(err)
		}
		defer consumer.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if records, err := consumer.Poll(ctx, 1); err != nil || len(records) == 0 {
			t.Errorf("%s reads %s as %s: %d records, %v", role, topic, group, len(records), err)
		}
		if err := consumer.Commit(ctx); err != nil {
			t.Errorf("%s commits %s as %s: %v", role, topic, group, err)
		}
	}
	lane := c.Lanes[1]
	consume(wiring.Worker, lane.Topic, c.Kafka.LaneGroup(lane.Name))
	for _, topic := range wiring.RetryTopics(c, lane) {
		consume(wiring.Worker, topic.Name, c.Kafka.RetryGroup(lane.Name))
	}

	// A registry reads the retention of tombstones in push.users at its start,
	// follows and appends to it, and consumes push.feedback.
	starting, err := kafka.NewAdmin(options(wiring.Registry))
	if err != nil {
		t.Fatal(err)
	}
	defer starting.Close()
	if _, err := starting.TopicConfig(t.Context(), kafka.UsersTopic, "delete.retention.ms"); err != nil {
		t.Errorf("a registry's start: %v", err)
	}
	appending, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, topic := range []string{kafka.UsersTopic, kafka.QuarantineTopic} {
		w, err := kafka.NewWriter(options(wiring.Registry), kafka.WriterOptions{Topic: topic})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Append(appending, []kafka.Record{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
			t.Errorf("a registry appends: %v", err)
		}
		w.Close()
	}
	follow := func(role wiring.Role, topic string) error {
		follower, err := kafka.NewFollower(options(role), topic, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer follower.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err = follower.Poll(ctx, 1)
		return err
	}
	if err := follow(wiring.Registry, kafka.UsersTopic); err != nil {
		t.Errorf("a registry follows: %v", err)
	}
	consume(wiring.Registry, kafka.FeedbackTopic, c.Registry.Group)
	if err := follow(wiring.Operator, kafka.QuarantineTopic); err != nil { // users quarantine ls
		t.Errorf("an operator looks at the quarantine: %v", err)
	}
	if err := follow(wiring.Reader, kafka.EventsTopic); err != nil {
		t.Errorf("a reader of events: %v", err)
	}
	can(wiring.Dashboard, "top", "--once")

	for _, args := range [][]string{{"lag"}, {"events", "tail", "--since", "1h", "--stop"}, {"dlq", "ls"}, {"dlq", "redrive", "--yes"}, {"dlq", "dismiss", "--all", "--yes"},
		{"dlq", "purge", "--all", "--yes"}, {"devices", "add", "--user", "u1", "--app", "shop", "--platform", "fcm", "--token-file", token}} {
		can(wiring.Operator, args...)
	}

	for _, tt := range []struct {
		role wiring.Role
		args []string
	}{
		{"nobody", send}, {wiring.Registry, send}, {wiring.Reader, send}, {wiring.Dashboard, send}, {wiring.Redriver, send}, {wiring.Reader, []string{"dlq", "ls"}},
		{wiring.Dashboard, []string{"devices", "add", "--user", "u1", "--app", "shop", "--platform", "fcm", "--token-file", token}}, {wiring.Worker, send},
		{wiring.Producer, []string{"dlq", "ls"}}, {wiring.Producer, []string{"events", "tail", "--stop"}}, {wiring.Producer, []string{"lag"}},
		{wiring.Producer, []string{"devices", "add", "--user", "u1", "--app", "shop", "--platform", "fcm", "--token-file", token}},
		{wiring.Worker, []string{"devices", "add", "--user", "u1", "--app", "shop", "--platform", "fcm", "--token-file", token}},
		{wiring.Worker, []string{"dlq", "purge", "--all", "--yes"}}, {wiring.Registry, []string{"dlq", "ls"}},
	} {
		if exit, _, stderr := as(tt.role, tt.args...); exit != exitFailed || !strings.Contains(stderr, "AUTHORIZATION_FAILED") {
			t.Errorf("%s, %v: exit status %d, %s; want it refused", tt.role, tt.args, exit, stderr)
		}
	}
}
