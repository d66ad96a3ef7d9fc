package push

// Partition is one partition of one topic.
type Partition struct {
	Topic string
	ID    int32
}
