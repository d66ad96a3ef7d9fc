package collapse

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// The commands of a call are plain ones: a script with the same commands costs Redis half
// as much again or more.

// opens makes the commands that open the keys of all items. Where something was accepted, it
// stays, unless that is too old to be asked for.
func (sc *scratch) opens(ctx context.Context, now time.Time, keep time.Duration) {
	sc.adds(ctx, now, keep, strconv.FormatInt(scoreAt(now.Add(-keep)), 10))
}

// notes makes the commands that note all items.
func (sc *scratch) notes(ctx context.Context, now time.Time, keep time.Duration) {
	sc.adds(ctx, now, keep, "")
}

// adds makes the commands that add the keys of all items with one score or, if that is empty,
// with theirs. A member moves to a later score only.
//
// The set's end comes right behind: only a connection that breaks between the two, and stays
// away for the client's retries, leaves one set without an end, until its user's next key or
// Forget. At some keys goes what is too old, and what is too much. What is kept as long again
// is nothing that can be asked for, but a key that was opened meanwhile may have found it there.
func (sc *scratch) adds(ctx context.Context, now time.Time, keep time.Duration, score string) {
	sc.names.Reset()
	for _, it := range sc.items {
		owner := it.Owner()
		sc.names.Collapse(shards.UserShard(owner), owner)
	}
	keys := sc.names.List()
	sc.places()
	sc.settings = [...]string{score, strconv.FormatInt(keep.Milliseconds(), 10), strconv.FormatInt(scoreAt(now.Add(-2*keep)), 10), strconv.Itoa(-maxKeys - 1)}
	with, ttl, old, last := &sc.settings[0], &sc.settings[1], &sc.settings[2], &sc.settings[3]
	for i := range sc.items {
		key := &keys[i]
		if score == "" {
			with = &sc.values[2*i]
		}
		sc.add(ctx, "ZADD", key, "GT", with, &sc.values[2*i+1])
		sc.add(ctx, "PEXPIRE", key, ttl)
		if sc.scores[i]%trimEvery == 0 {
			sc.add(ctx, "ZREMRANGEBYSCORE", key, "-inf", old)
			sc.add(ctx, "ZREMRANGEBYRANK", key, "0", last)
		}
	}
}

// asks makes the questions whether the users of the items that are alone have open keys:
// a command for some of them. It returns the keys that are asked for.
func (sc *scratch) asks(ctx context.Context, cluster bool) (keys []string) {
	sc.groups.Arrange(len(sc.alone), shards.Users, func(i int) int {
		push.Prefetch(i, len(sc.alone), func(i int) byte { return push.Ends(sc.alone[i].UserID) })
		return shards.UserShard(sc.alone[i].Owner())
	})
	sc.others.Reset()
	begun := 0 // the first of sorted that is in no question
	for s, of := range sc.groups.All() {
		if cluster {
			begun = sc.question(begun)
		}
		for _, i := range of {
			if len(sc.sorted)-begun == mostAsked {
				begun = sc.question(begun)
			}
			sc.sorted = append(sc.sorted, sc.alone[i])
			sc.others.Collapse(s, sc.alone[i].Owner())
		}
	}
	sc.question(begun)
	keys = sc.others.List()
	begun = 0
	for _, end := range sc.questions {
		from := len(sc.args)
		sc.args = append(sc.args, "EXISTS")
		for i := begun; i < end; i++ {
			sc.args = append(sc.args, &keys[i])
		}
		sc.command(ctx, from)
		begun = end
	}
	return keys
}

// question ends a question that begins at an item of sorted, and returns where the next one
// begins. It may not be empty.
func (sc *scratch) question(begun int) int {
	if len(sc.sorted) > begun {
		sc.questions = append(sc.questions, len(sc.sorted))
	}
	return len(sc.sorted)
}

// updates makes the commands that note the items of a question to which Redis knows a key,
// where their own keys are open. It reports whether there are any.
func (sc *scratch) updates(ctx context.Context, keys []string) bool {
	answers := sc.cmds[len(sc.cmds)-len(sc.questions):]
	clear(sc.items)
	sc.items = sc.items[:0]
	open, begun := keys[:0], 0
	for q, end := range sc.questions {
		if answers[q].Val() > 0 {
			sc.items, open = append(sc.items, sc.sorted[begun:end]...), append(open, keys[begun:end]...)
		}
		begun = end
	}
	sc.forget()
	sc.places()
	for i := range sc.items {
		sc.add(ctx, "ZADD", &open[i], "XX", "GT", &sc.values[2*i], &sc.values[2*i+1])
	}
	return len(sc.items) > 0
}

// add makes one command.
func (sc *scratch) add(ctx context.Context, args ...any) {
	from := len(sc.args)
	sc.args = append(sc.args, args...)
	sc.command(ctx, from)
}

// command makes one command of the arguments from one on.
func (sc *scratch) command(ctx context.Context, from int) {
	sc.cmds = append(sc.cmds, *redis.NewIntCmd(ctx, sc.args[from:len(sc.args):len(sc.args)]...))
}

// places notes the score of every item, and writes score and member into values, which
// share one piece of memory.
func (sc *scratch) places() {
	sc.text, sc.ends = sc.text[:0], sc.ends[:0]
	needs := func(i int) byte {
		it := sc.items[i]
		return push.Ends(it.ID) + push.Ends(it.CollapseKey) + byte(it.FirstSeen)
	}
	for i := range push.Prefetching(len(sc.items), needs) {
		it := sc.items[i]
		sc.scores = append(sc.scores, score(it))
		sc.text = strconv.AppendInt(sc.text, sc.scores[i], 10)
		sc.ends = append(sc.ends, len(sc.text))
		sc.text = appendMember(sc.text, it)
		sc.ends = append(sc.ends, len(sc.text))
	}
	all, from := string(sc.text), 0
	for _, end := range sc.ends {
		sc.values = append(sc.values, all[from:end])
		from = end
	}
}
