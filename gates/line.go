package gates

import "github.com/pushfleet/pushfleet/push"

// Line names a line to other packages: its route and its charge. Charge is empty
// for deliveries that pay nothing. The zero Line means none.
type Line struct {
	Route  push.Route
	Charge string
}

// Progress counts deliveries.
type Progress struct {
	Out       int    // deliveries that wait or are in flight
	Completed uint64 // deliveries that had their turn and came back, since the start
}

// LineProgress is the progress of a line, in all and by partition.
type LineProgress struct {
	Line Line
	Progress
	Partitions map[push.Partition]Progress
	// Turn is the most deliveries of a line that come back before one comes back
	// of each partition that has something in it.
	Turn int
}
