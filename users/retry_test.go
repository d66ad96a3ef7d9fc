package users_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

var errGone = errors.New("nobody answers")

// shaky are the collaborators of a Feedback, each of which fails so many times.
type shaky struct {
	users.FeedbackSource
	users.Log
	polls, appends, commits int
}

func fails(left *int) bool {
	*left--
	return *left >= 0
}

func (s *shaky) Poll(ctx context.Context) ([][]byte, error) {
	if fails(&s.polls) {
		return nil, errGone
	}
	return s.FeedbackSource.Poll(ctx)
}

func (s *shaky) Commit(ctx context.Context) error {
	if fails(&s.commits) {
		return errGone
	}
	return s.FeedbackSource.Commit(ctx)
}

func (s *shaky) Append(ctx context.Context, records []users.Record) error {
	if fails(&s.appends) {
		return errGone
	}
	return s.Log.Append(ctx, records)
}

// Each step of a report is tried again until it works, with a rest that
// doubles, and the step behind it waits. Who stops meanwhile hears that he did,
// and nothing is committed that was not removed.
func TestFeedbackTriesEachStepAgain(t *testing.T) {
	const forever = 1 << 30
	for _, tt := range []struct {
		why   string
		fails shaky
		ends  bool
		most  time.Duration // of all its rests, of which up to a half is random
	}{
		{"all works", shaky{}, true, 0},
		{"reading fails", shaky{polls: 3}, true, 700 * time.Millisecond},
		{"removing fails", shaky{appends: 3}, true, 700 * time.Millisecond},
		{"committing fails", shaky{commits: 3}, true, 700 * time.Millisecond},
		{"removing fails for long", shaky{appends: 6}, true, (100 + 200 + 400 + 500 + 500 + 500) * time.Millisecond},
		{"reading never works", shaky{polls: forever}, false, 0},
		{"removing never works", shaky{appends: forever}, false, 0},
		{"committing never works", shaky{commits: forever}, false, 0},
	} {
		virtual(t, func(w *world) {
			w.Register("ada", 1, 100)
			w.Run(userstest.RegistryOptions())
			w.Settle()
			source := userstest.NewReports()
			s := tt.fails
			s.FeedbackSource, s.Log = source, w.Topic
			o := users.DefaultFeedbackOptions()
			o.RetryDelay, o.MaxRetryDelay = 100*time.Millisecond, 500*time.Millisecond
			reg := prometheus.NewRegistry()
			f, err := users.NewFeedback(w.Redis, &s, &s, o, users.NewMetrics(reg), quiet)
			w.Must(err)
			ctx, stop := context.WithTimeout(w.Ctx, 10*time.Second)
			defer stop()
			done := make(chan error, 1)
			began := time.Now()
			go func() { done <- f.Run(ctx) }()
			source.Add(feedback("ada", 1, 110, 120))
			select {
			case <-source.Committed:
				if took := time.Since(began); !tt.ends || took < tt.most/2 || took > tt.most {
					t.Errorf("%s: committed after %v, want %v to %v", tt.why, took, tt.most/2, tt.most)
				}
				if records := w.Topic.Records(); len(records) != 2 || records[1].Value != nil {
					t.Errorf("%s: committed with %d records in the topic", tt.why, len(records))
				}
				stop()
			case <-ctx.Done():
				if tt.ends {
					t.Errorf("%s: not committed", tt.why)
				}
			}
			if err := <-done; !errors.Is(err, ctx.Err()) || err == nil {
				t.Errorf("%s: ended with %v", tt.why, err)
			}
			if !tt.ends && len(source.Committed) > 0 {
				t.Errorf("%s: committed all the same", tt.why)
			}
			want := float64(tt.fails.polls + tt.fails.appends + tt.fails.commits)
			if n := w.figure(reg, "push_feedback_errors_total"); tt.ends && n != want || n > 100 {
				t.Errorf("%s: %v errors were counted", tt.why, n)
			}
		})
	}
}

// What fails is tried again after a rest that doubles up to its most, up to a half
// of it random, and begins anew once something has worked.
func TestRegistryRestsBetweenItsTries(t *testing.T) {
	virtual(t, func(w *world) {
		var gone atomic.Bool
		w.Wrap = func(topics *users.RegistryTopics) { topics.Follower = away{topics.Follower, &gone} }
		var failed []time.Time
		w.Progress = func(p users.Progress) {
			if p.Err != nil {
				failed = append(failed, time.Now())
			}
		}
		o := userstest.RegistryOptions()
		o.RetryDelay, o.MaxRetryDelay = time.Second, 6*time.Second
		stop := w.Run(o)
		for range 2 {
			gone.Store(false)
			time.Sleep(30 * time.Second)
			gone.Store(true)
			time.Sleep(22 * time.Second)
		}
		stop()
		var outages [][]time.Duration
		for i := 1; i < len(failed); i++ {
			switch rest := failed[i].Sub(failed[i-1]); {
			case rest > 20*time.Second: // it worked
				outages = append(outages, nil)
			case len(outages) == 0:
				outages = append(outages, []time.Duration{rest})
			default:
				outages[len(outages)-1] = append(outages[len(outages)-1], rest)
			}
		}
		if len(outages) != 2 {
			t.Fatalf("%d outages were told, want 2: %v", len(outages), outages)
		}
		most := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 6 * time.Second}
		for _, rests := range outages {
			if len(rests) < len(most) {
				t.Errorf("rested %v in 22 s, want %v and more", rests, most)
			}
			for i, rest := range rests {
				if want := most[min(i, len(most)-1)]; rest < want/2 || rest > want {
					t.Errorf("rested %v for %v, want half of %v to all of it", rests, rest, want)
				}
			}
		}
	})
}

// short is a Redis whose answers lack a value, to single commands or in
// pipelines, while it is so.
type short struct{ single, piped *atomic.Bool }

func (s short) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s short) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if s.single.Load() {
			shorten(cmd)
		}
		return err
	}
}

func (s short) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if s.piped.Load() {
				shorten(cmd)
			}
		}
		return err
	}
}

func shorten(cmd redis.Cmder) {
	if values, is := cmd.(*redis.SliceCmd); is && len(values.Val()) > 0 {
		values.SetVal(values.Val()[1:])
	}
}

// An answer that lacks a value says nothing of any, as nobody knows which is
// missing: it is a failure, and what depends on it waits.
func TestAnswersThatLackAValue(t *testing.T) {
	for _, piped := range []bool{false, true} {
		virtual(t, func(w *world) {
			var now atomic.Bool
			is := short{single: &now, piped: new(atomic.Bool)}
			if piped {
				is = short{single: new(atomic.Bool), piped: &now}
			}
			open := w.Open
			w.Open = func() redis.UniversalClient {
				client := open()
				client.AddHook(is)
				return client
			}
			var failed atomic.Int64
			w.Progress = func(p users.Progress) {
				if p.Err != nil {
					failed.Add(1)
				}
			}
			w.fill()
			o := userstest.RegistryOptions()
			o.RetryDelay, o.MaxRetryDelay = time.Second, time.Second
			w.Run(o)
			w.agree()
			now.Store(true)
			w.Register("ada", 8, 8) // to be read before it is written
			w.Register("cy", 8, 9)  // and to be settled
			time.Sleep(2 * time.Second)
			if failed.Load() == 0 {
				t.Errorf("piped %v: it went on", piped)
			}
			if !piped {
				client := w.Open()
				if _, err := users.NewReader(client, false).Stored(w.Ctx, "ada"); err == nil {
					t.Error("a profile of half an answer")
				}
				w.Must(client.Close())
			}
			now.Store(false)
			w.agree()
		})
	}
}

// What cannot work is said before anything runs.
func TestSettingsThatCannotWork(t *testing.T) {
	for i, change := range []func(*users.RegistryOptions){
		func(o *users.RegistryOptions) { o.CheckInterval = 0 },
		func(o *users.RegistryOptions) { o.BeatInterval = 0 },
		func(o *users.RegistryOptions) { o.MaxStale = -1 },
		func(o *users.RegistryOptions) { o.RetryDelay = 0 },
		func(o *users.RegistryOptions) { o.MaxRetryDelay = o.RetryDelay - 1 },
		func(o *users.RegistryOptions) { o.Devices.User = 0 },
		func(o *users.RegistryOptions) { o.Devices.App = 0 },
	} {
		o := users.DefaultRegistryOptions()
		o.MaxRetryDelay, o.Devices = o.RetryDelay, record.DeviceLimits{User: 1, App: 1} // as little as may be
		if _, err := users.NewRegistry(nil, users.RegistryTopics{}, o, nil, quiet); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if r, err := users.NewRegistry(nil, users.RegistryTopics{}, o, nil, quiet); err == nil || r != nil {
			t.Errorf("registry %d: %+v is taken", i, o)
		}
	}
	for o, good := range map[users.FeedbackOptions]bool{
		{PerMinute: 1, RetryDelay: 1, MaxRetryDelay: 1}: true,
		{PerMinute: 0, RetryDelay: 1, MaxRetryDelay: 1}: false,
		{PerMinute: 1, RetryDelay: 0, MaxRetryDelay: 1}: false,
		{PerMinute: 1, RetryDelay: 2, MaxRetryDelay: 1}: false,
	} {
		if f, err := users.NewFeedback(nil, nil, nil, o, nil, quiet); (err == nil) != good || (f != nil) != good {
			t.Errorf("feedback %+v: %v", o, err)
		}
	}
}

// losing is a follower that loses what it has read when it fails.
type losing struct {
	users.Follower
	fails *atomic.Bool
}

func (l losing) Poll(ctx context.Context) ([]users.Fetched, error) {
	fetched, err := l.Follower.Poll(ctx)
	if err == nil && len(fetched) > 0 && l.fails.Swap(false) {
		return nil, errors.New("the connection broke")
	}
	return fetched, err
}

// After a failure nobody knows where the follower stands: it is told, also when
// all shards are as far as the registry was.
func TestFollowerThatLosesItsPlace(t *testing.T) {
	virtual(t, func(w *world) {
		var fails atomic.Bool
		w.Wrap = func(topics *users.RegistryTopics) { topics.Follower = losing{topics.Follower, &fails} }
		w.fill()
		o := userstest.RegistryOptions()
		o.BeatInterval = o.CheckInterval
		w.Run(o)
		w.agree()
		for w.Behind() != "" {
			time.Sleep(o.CheckInterval)
		}
		fails.Store(true)
		w.OptOut("cy", "promo")
		time.Sleep(3 * o.CheckInterval)
		w.agree()
		if fails.Load() {
			t.Error("nothing was lost")
		}
	})
}
