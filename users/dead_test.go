package users

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// Who is asked about a dead token: the user whom the report names, and who claims it, each
// once. A report of which nobody is asked is one about an unknown device.
func TestWhoMayHaveADeadToken(t *testing.T) {
	client, _ := inProcess(t)
	hash := push.DeviceHash(push.FCM, "t")
	home := state.TokenHome(hash)
	claimed := string(record.Claims{{User: "ada", At: 1}, {User: "bob", At: 2}}.Encode(7))
	for _, tt := range []struct {
		why, named, entry, asked string
		unknown                  int
		lost                     bool // the registry is told of the entry
	}{
		{why: "who is named claims it", named: "ada", entry: claimed, asked: "ada bob"},
		{why: "somebody else is named", named: "eve", entry: claimed, asked: "eve ada bob"},
		{why: "nobody is named", entry: claimed, asked: "ada bob"},
		{why: "the device is named itself", named: hash, entry: claimed, asked: "ada bob"},
		{why: "who is named is no user", named: strings.Repeat("u", 129), entry: claimed, asked: "ada bob"},
		{why: "nobody claims it", named: "ada", asked: "ada"},
		{why: "nobody is named and nobody claims it", unknown: 1},
		{why: "the device is named itself, and nobody claims it", named: hash, unknown: 1},
		{why: "the entry cannot be read", named: "ada", entry: "garbage", asked: "ada", lost: true},
		{why: "the entry cannot be read, and nobody is named", entry: "garbage", unknown: 1, lost: true},
	} {
		client.FlushAll(t.Context())
		client.Set(t.Context(), shards.EpochKey(home), state.FormatBuild(7), 0)
		if tt.entry != "" {
			client.Set(t.Context(), state.TokenKey(hash), tt.entry, 0)
		}
		f, err := NewFeedback(client, nil, nil, DefaultFeedbackOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		list, unknown, err := f.suspects(t.Context(), []report{{UserID: tt.named, Device: hash}})
		var asked []string
		for _, s := range list {
			asked = append(asked, s.user)
		}
		if err != nil || strings.Join(asked, " ") != tt.asked || unknown != tt.unknown {
			t.Errorf("%s: asked are %q, %d reports of unknown devices, %v; want %q and %d", tt.why, asked, unknown, err, tt.asked, tt.unknown)
		}
		if lost := client.SIsMember(t.Context(), state.OpenKey(home), record.LostToken+hash).Val(); lost != tt.lost {
			t.Errorf("%s: the registry is told of the entry: %v", tt.why, lost)
		}
	}
}

// answering is a guard that gives these answers, and then fails. It ends the test of who
// asks on and on.
type answering struct {
	t       *testing.T
	answers [][]any
	asked   int
}

func (*answering) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (a *answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if a.asked++; a.asked > 20 {
			a.t.Fatal("the guard is asked on and on")
		}
		if a.asked > len(a.answers) {
			cmd.SetErr(errAny)
			return errAny
		}
		cmd.(*redis.Cmd).SetVal(a.answers[a.asked-1])
		return nil
	}
}

// parts is a topic that notes how many records each append has.
type parts []int

func (p *parts) Append(_ context.Context, records []Record) error {
	*p = append(*p, len(records))
	return nil
}

// Removals go as the guard lets them, and never without it. What waits shows at once, and
// who is stopped while they wait does not say that they are done.
func TestRemovalsWaitForTheGuard(t *testing.T) {
	grant := func(n, ms int64) []any { return []any{n, ms} }
	for _, tt := range []struct {
		why     string
		answers [][]any
		parts   string
		took    time.Duration
		waiting float64
		fails   error
	}{
		{"all at once", [][]any{grant(3, 60_000)}, "[3]", 0, 0, nil},
		{"in parts", [][]any{grant(2, 60_000), grant(0, 50_000), grant(1, 60_000)}, "[2 1]", 50 * time.Second, 0, nil},
		{"the window ends this moment", [][]any{grant(0, 0), grant(3, 60_000)}, "[3]", time.Millisecond, 0, nil},
		{"stopped while all wait", [][]any{grant(0, 59_000), grant(0, 59_000)}, "[]", 90 * time.Second, 3, context.DeadlineExceeded},
		{"stopped while some wait", [][]any{grant(1, 60_000), grant(0, 59_000), grant(0, 59_000)}, "[1]", 90 * time.Second, 2, context.DeadlineExceeded},
		{"the guard is away", nil, "[]", 0, 0, errAny},
		{"the guard goes away", [][]any{grant(1, 60_000)}, "[1]", 0, 2, errAny},
		{"half an answer", [][]any{{int64(3)}}, "[]", 0, 0, errReply},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true})
			defer func() { _ = client.Close() }()
			client.AddHook(&answering{t: t, answers: tt.answers})
			topic := parts{}
			f, err := NewFeedback(client, nil, &topic, DefaultFeedbackOptions(), nil, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 90*time.Second)
			defer stop()
			began := time.Now()
			err = f.append(ctx, make([]Record, 3))
			if !errors.Is(err, tt.fails) || fmt.Sprint(topic) != tt.parts || time.Since(began) != tt.took {
				t.Errorf("%s: appended %v in %v, %v; want %s in %v, %v", tt.why, topic, time.Since(began), err, tt.parts, tt.took, tt.fails)
			}
			if waiting := testutil.ToFloat64(f.metrics.waiting); waiting != tt.waiting {
				t.Errorf("%s: %v removals wait, want %v", tt.why, waiting, tt.waiting)
			}
		})
	}
}

// A window has so many removals, and who gets none hears when it ends.
func TestAWindowOfTheGuard(t *testing.T) {
	client, _ := inProcess(t)
	g := newPruneGuard(client, 10)
	var granted []int
	var wait time.Duration
	for _, n := range []int{7, 7, 1} {
		got, until, err := g.take(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		granted, wait = append(granted, got), until
	}
	if !slices.Equal(granted, []int{7, 3, 0}) || wait < 30*time.Second || wait > time.Minute {
		t.Errorf("granted %v, and the window ends in %v; want 7, 3, none, and nearly a minute", granted, wait)
	}
}
