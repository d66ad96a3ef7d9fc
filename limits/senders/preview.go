package senders

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/shards"
)

// Preview answers each request as Decide would answer it alone, and takes no token. The
// requests are not Paid by it.
func (l *Limits) Preview(ctx context.Context, reqs []*limits.Request) error {
	for _, r := range reqs {
		paid := r.Paid
		err := l.preview(ctx, r)
		if r.Paid = paid; err != nil {
			return fmt.Errorf("looking at the buckets of a sender: %w", err)
		}
	}
	return nil
}

func (l *Limits) preview(ctx context.Context, r *limits.Request) error {
	for _, o := range l.orders([]*limits.Request{r}) {
		shard := shards.UserShard(r.Sender)
		keys := make([]string, len(o.rules))
		for i, rule := range o.rules {
			keys[i] = shards.BucketKey(shard, l.buckets[rule].hash, r.Sender)
		}
		found, err := l.client.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		behind, granted := make([]int64, len(keys)), true
		for i, rule := range o.rules {
			b := &l.buckets[rule]
			behind[i] = lacking(found[i], o.now.UnixMicro())
			granted = granted && behind[i]+b.every-b.full <= min(b.wait, o.runs[0].bound)
		}
		l.decide(r, o.rules, behind, 1, granted, o.now)
	}
	return nil
}

// lacking is how far a stored bucket is from full, in us, as the script reads it.
func lacking(stored any, now int64) int64 {
	text, _ := stored.(string)
	at, err := strconv.ParseFloat(text, 64)
	if err != nil || at != at {
		return 0 // there is none, or it is no time: a full one
	}
	return int64(max(0, min(at-float64(now), mostOwed)))
}
