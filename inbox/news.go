package inbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// News are kept by slots of time, each a partition that is read while it is young and dies
// a few minutes later.
const (
	slotTime = 2 * time.Second
	// newsBack is how far back a look goes: what is written arrives late, by clocks that
	// differ.
	newsBack = clocks
)

func slotOf(at time.Time) int64 { return at.UnixMilli() / slotTime.Milliseconds() }

// Hash is what news name an inbox by. Two that have the same cost a look in vain.
func (k Key) Hash() uint64 {
	d := xxhash.New()
	_, _ = d.WriteString(k.App) // a hash takes everything
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(k.User)
	return d.Sum64()
}

// hashes are those of keys, each once.
func hashes(keys []Key) []uint64 {
	list := make([]uint64, len(keys))
	for i, k := range keys {
		list[i] = k.Hash()
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Line is one line of news.
type Line struct {
	Key uint64 // Key.Hash
	At  time.Time
}

const selectNews = "SELECT key, at FROM inbox_news WHERE slot = ?"

// News are what was written in the last seconds before now, by the clocks of those who
// wrote it: in no order, and again in the next call.
func (s *Store) News(ctx context.Context) ([]Line, error) {
	now := s.now()
	var lines []Line
	for slot := slotOf(now.Add(-newsBack)); slot <= slotOf(now.Add(slotTime)); slot++ {
		var key int64
		var at time.Time
		err := s.tables.Query(ctx, selectNews, []any{slot}, []any{&key, &at}, func() { lines = append(lines, Line{uint64(key), at.UTC()}) })
		if err != nil {
			return nil, fmt.Errorf("inbox: reading news: %w", err)
		}
	}
	return lines, nil
}
