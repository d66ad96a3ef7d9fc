package collapse

import (
	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/shards"
)

// scratch is the working memory of one call.
type scratch struct {
	items    []*pipeline.Item // those that are asked, or told about with their scores
	asked    []int32          // Superseded: their indexes in the caller's slice
	names    shards.Names     // of items
	text     []byte           // of all values
	ends     []int
	scores   []int64  // of each item
	values   []string // score and member of each item
	settings [4]string
	args     []any
	cmds     []redis.IntCmd

	// Of those that are noted only where their keys are open.
	alone     []*pipeline.Item
	groups    shards.Groups
	sorted    []*pipeline.Item // shard by shard
	others    shards.Names     // of sorted
	questions []int            // where each ends in sorted
}

func (l *Latest) begin() *scratch { return l.scratch.Get().(*scratch) }

// end drops all references to what belongs to the caller.
func (l *Latest) end(sc *scratch) {
	for _, items := range []*[]*pipeline.Item{&sc.items, &sc.alone, &sc.sorted} {
		clear(*items)
		*items = (*items)[:0]
	}
	sc.forget()
	sc.asked, sc.questions = sc.asked[:0], sc.questions[:0]
	l.scratch.Put(sc)
}

// forget drops all commands.
func (sc *scratch) forget() {
	clear(sc.args)
	clear(sc.values)
	clear(sc.cmds)
	sc.args, sc.scores, sc.values, sc.cmds = sc.args[:0], sc.scores[:0], sc.values[:0], sc.cmds[:0]
}
