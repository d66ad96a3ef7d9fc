package collapse

import "github.com/pushfleet/pushfleet/pipeline"

// Bits are those of an item's id by which it is told from another.
func Bits(it *pipeline.Item) int64 { return score(it) & idMask }
