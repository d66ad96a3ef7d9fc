//go:build unix

package endtoend

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/kafka"
)

// wires are a process's connections to Kafka, on which it is seen what it asks for and what it is
// answered: no interface of ours stands between a fan-out and its producer and offsets.
type wires struct {
	at    func(point string)
	steps map[string]string // by topic: the step that producing to it is

	mu    sync.Mutex
	names map[[16]byte]string // guarded by mu; topics by their ids, which requests name them by
}

// The steps on the way to Kafka.
const (
	stepAck    = "ack"    // records of the lane
	stepChunk  = "chunk"  // records of chunks
	stepCommit = "commit" // offsets
)

func newWires(at func(point string), lane, chunks string) *wires {
	return &wires{at: at, steps: map[string]string{lane: stepAck, chunks: stepChunk}, names: map[[16]byte]string{}}
}

func (w *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, all: w, asked: map[int32]exchange{}}, nil
}

// exchange is a request whose answer is to come.
type exchange struct {
	key, version int16
	steps        []string
}

// wire is one of the connections.
type wire struct {
	net.Conn
	all *wires

	mu      sync.Mutex
	out, in []byte             // guarded by mu; what is no whole frame yet
	asked   map[int32]exchange // guarded by mu; by correlation id
}

// Write sends the last part of a request only when the process has passed what comes before it.
func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.out = append(w.out, b...)
	var steps []string
	for frame := range frames(&w.out) {
		steps = append(steps, w.request(frame)...)
	}
	w.mu.Unlock()
	for _, s := range steps {
		w.all.at("before " + s)
	}
	return w.Conn.Write(b)
}

// Read gives nobody the last part of an answer before the process has passed what comes after it.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.mu.Lock()
	w.in = append(w.in, b[:n]...)
	var steps []string
	for frame := range frames(&w.in) {
		steps = append(steps, w.answer(frame)...)
	}
	w.mu.Unlock()
	for _, s := range steps {
		w.all.at("after " + s)
	}
	return n, err
}

// frames takes the whole ones from memory, without their sizes.
func frames(memory *[]byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(*memory) >= 4 {
			end := 4 + int(binary.BigEndian.Uint32(*memory))
			if len(*memory) < end {
				return
			}
			frame := (*memory)[4:end]
			if *memory = (*memory)[end:]; !yield(frame) {
				return
			}
		}
	}
}

// The place of a request's fields, whatever it asks for.
const (
	versionAt     = 2
	correlationAt = 4
	clientAt      = 8
)

// request notes one, and returns the steps that it is. It is called with mu held.
func (w *wire) request(frame []byte) []string {
	if len(frame) < clientAt+2 {
		return nil
	}
	a := exchange{key: int16(binary.BigEndian.Uint16(frame)), version: int16(binary.BigEndian.Uint16(frame[versionAt:]))}
	switch kmsg.Key(a.key) {
	case kmsg.OffsetCommit:
		a.steps = []string{stepCommit}
	case kmsg.Produce:
		a.steps = w.all.produces(a.version, frame)
	case kmsg.Metadata:
	default:
		return nil
	}
	w.asked[int32(binary.BigEndian.Uint32(frame[correlationAt:]))] = a
	return a.steps
}

// produces are the steps that a Produce request is.
func (w *wires) produces(version int16, frame []byte) (steps []string) {
	client := max(0, int(int16(binary.BigEndian.Uint16(frame[clientAt:]))))
	body := frame[clientAt+2+client:]
	r := kmsg.NewPtrProduceRequest()
	r.SetVersion(version)
	if r.IsFlexible() {
		body = body[1:] // no tags
	}
	if err := r.ReadFrom(body); err != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range r.Topics {
		name := r.Topics[i].Topic
		if name == "" {
			name = w.names[r.Topics[i].TopicID]
		}
		if step := w.steps[name]; step != "" && !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// answer returns the steps that it ends. It is called with mu held.
func (w *wire) answer(frame []byte) []string {
	if len(frame) < 4 {
		return nil
	}
	correlation := int32(binary.BigEndian.Uint32(frame))
	a, known := w.asked[correlation]
	if !known {
		return nil
	}
	delete(w.asked, correlation)
	if kmsg.Key(a.key) == kmsg.Metadata {
		w.all.learn(a.version, frame[4:])
	}
	return a.steps
}

// learn keeps the ids of topics.
func (w *wires) learn(version int16, body []byte) {
	r := kmsg.NewPtrMetadataResponse()
	r.SetVersion(version)
	if r.IsFlexible() && len(body) > 0 {
		body = body[1:] // no tags
	}
	if err := r.ReadFrom(body); err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range r.Topics {
		if t := &r.Topics[i]; t.Topic != nil {
			w.names[t.TopicID] = *t.Topic
		}
	}
}

// What is produced to the lane and to the topic of chunks, and what is committed, is seen before
// it is sent and after it is answered; what goes to another topic is nobody's step.
func TestStepsAreSeenOnTheWire(t *testing.T) {
	const lane, chunks, other = "lane", "chunks", "other"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, lane, chunks, other))
	check(t, err)
	defer cluster.Close()
	seen := make(chan string, 100)
	o := kafka.Options{Brokers: cluster.ListenAddrs(), Dial: newWires(func(point string) { seen <- point }, lane, chunks).dial}
	placer, err := kafka.NewPlacer(o, kafka.PlacerOptions{Records: 10, Bytes: 1 << 20})
	check(t, err)
	produced := make(chan error)
	for _, topic := range []string{other, lane, chunks} {
		placer.Place(&kafka.Placed{Topic: topic, Value: []byte("v")}, func(err error) { produced <- err })
		check(t, <-produced)
	}
	placer.Close(waiting(t))
	tasks, err := kafka.NewTasks(o, kafka.TasksOptions{Topic: chunks, Group: "g"})
	check(t, err)
	ctx, stop := context.WithCancel(waiting(t))
	tasks.Run(ctx, func(context.Context, *kafka.Task) error {
		stop() // leaving commits what is done
		return nil
	})
	close(seen)
	var got []string
	for point := range seen {
		got = append(got, point)
	}
	want := []string{"before ack", "after ack", "before chunk", "after chunk", "before commit", "after commit"}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("seen %q, want %q", got, want)
	}
}
