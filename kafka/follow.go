package kafka

import (
	"context"
	"errors"
	"time"
)

const (
	// followed is how many records Follow takes at once.
	followed = 1000
	// growEvery is how often Follow looks whether its topic has more partitions, and the
	// longest that it waits for an answer.
	growEvery = 10 * time.Second
)

// Follow calls each with the records that come, those of one partition in order, also in
// partitions that are added meanwhile, which it reads from their first record. It ends with an
// error: that of reading, as Poll has it, of each, or of ctx.
func (f *Follower) Follow(ctx context.Context, each func(Record) error) error {
	for {
		if err := f.followFor(ctx, growEvery, each); err != nil {
			return err
		}
		looking, cancel := context.WithTimeout(ctx, growEvery)
		_, _ = f.EndOffsets(looking) // the next time, if not now
		cancel()
	}
}

// followFor calls each with what comes in some time; nil = the time is over.
func (f *Follower) followFor(ctx context.Context, d time.Duration, each func(Record) error) error {
	within, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		records, err := f.Poll(within, followed)
		for _, rec := range records {
			if err := each(rec); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil, err == nil && within.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
	}
}
