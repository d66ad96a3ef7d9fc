package kafka

import (
	"errors"
	"testing"
)

// Tasks that fail again and again, such as jobs for a lane whose topic is gone, wait for
// their next attempt without keeping others waiting that the window has room for.
func TestTasksThatFailKeepNobodyWaiting(t *testing.T) {
	c := newCluster(t, 1, []string{"jobs"})
	c.produce("jobs", 0, 0, 8)
	trouble := errors.New("trouble")
	d := &desk{fail: map[int64]error{0: trouble, 1: trouble, 2: trouble, 3: trouble}}
	c.work(TasksOptions{AtOnce: 4, Window: 8}, d)
	eventually(t, "the four others are done", func() bool { return len(d.offsets()) == 4 })
}
