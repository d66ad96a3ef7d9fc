package kafka

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Without an answer from the brokers, every question ends with an error, never with an
// empty answer.
func TestAdminWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, []string{"push"})
	c.produce("push", 0, 0, 3)
	c.commitAt("g", "push", 1)
	a := c.admin()
	for what, ask := range map[string]func(context.Context) error{
		"ping": a.Ping,
		"a topic's setting": func(ctx context.Context) error {
			v, err := a.TopicConfig(ctx, "push", "cleanup.policy")
			if err == nil && v != "delete" {
				t.Errorf("got cleanup.policy %q", v)
			}
			return err
		},
		"one that there is not": func(ctx context.Context) error {
			v, err := a.TopicConfig(ctx, "push", "no.such.thing")
			if v != "" {
				t.Errorf("got %q for an unknown setting", v)
			}
			return err
		},
		"lag": func(ctx context.Context) error {
			lags, err := a.Lag(ctx, "g")
			if err == nil && !reflect.DeepEqual(lags, []PartitionLag{{"push", 0, 1, 3, 2}, {"push", 1, -1, 0, 0}}) {
				t.Errorf("got lags %v", lags)
			}
			return err
		},
		"nobody's lag": func(ctx context.Context) error {
			lags, err := a.Lag(ctx, "nobody")
			if len(lags) != 0 {
				t.Errorf("group that does not exist: got %v", lags)
			}
			return err
		},
		"committed": func(ctx context.Context) error {
			at, err := a.Committed(ctx, "g", "push")
			if err == nil && !reflect.DeepEqual(at, map[int32]int64{0: 1}) {
				t.Errorf("got commits %v", at)
			}
			return err
		},
		"ends": func(ctx context.Context) error {
			at, err := a.EndOffsets(ctx, "push")
			if err == nil && !reflect.DeepEqual(at, map[int32]int64{0: 3, 1: 0}) {
				t.Errorf("got ends %v", at)
			}
			return err
		},
		"starts": func(ctx context.Context) error {
			at, err := a.StartOffsets(ctx, "push")
			if err == nil && !reflect.DeepEqual(at, map[int32]int64{0: 0, 1: 0}) {
				t.Errorf("got starts %v", at)
			}
			return err
		},
	} {
		if err := ask(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := ask(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, with no waiter: %v", what, err)
		}
	}
	for _, topics := range [][]string{nil, {"push"}} {
		if err := a.CheckTopics(t.Context(), topics...); err != nil {
			t.Errorf("topics %q: %v", topics, err)
		}
	}
	if _, err := a.TopicConfig(t.Context(), "gone", "cleanup.policy"); err == nil {
		t.Error("got settings of a topic that does not exist")
	}
}

// An offset that a broker cannot tell is an error, not 0.
func TestOffsetsThatABrokerCannotTell(t *testing.T) {
	c := newCluster(t, 2, []string{"push"})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "push", Partitions: []int32{1}, Err: kerr.UnknownServerError, Count: -1})
	a := c.admin()
	for what, ask := range map[string]func(context.Context, string) (map[int32]int64, error){"starts": a.StartOffsets, "ends": a.EndOffsets} {
		if at, err := ask(t.Context(), "push"); !errors.Is(err, kerr.UnknownServerError) {
			t.Errorf("%s: got %v, error %v; want the partition's error", what, at, err)
		}
	}
}

// An operator reads why a topic could not be created: the code, and what the broker says
// about it if it says something.
func TestWhyATopicCannotBeCreated(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"":                          "topic push.dlq: creating the topic: " + kerr.PolicyViolation.Error(),
		"at most 3 partitions here": "topic push.dlq: creating the topic: " + kerr.PolicyViolation.Error() + ": at most 3 partitions here",
	} {
		c := newCluster(t, 1, []string{"push"})
		c.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode = r.(*kmsg.CreateTopicsRequest).Topics[0].Topic, kerr.PolicyViolation.Code
			if said != "" {
				topic.ErrorMessage = &said
			}
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		_, err := c.admin().EnsureTopics(t.Context(), []TopicSpec{{Name: "push.dlq", Partitions: 9, Replication: -1}}, EnsureOptions{})
		if !errors.Is(err, kerr.PolicyViolation) || err.Error() != want {
			t.Errorf("the broker says %q: got %v, want %s", said, err, want)
		}
	}
}
