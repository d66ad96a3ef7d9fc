package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// kafkaReady asks for the metadata of no topic (Metadata, version 4) and wants
// a broker and a controller in the answer: a broker that has not registered
// yet answers with neither.
func kafkaReady(ctx context.Context, addr string) error {
	conn, err := dial(ctx, answerTimeout, addr, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	var body []byte
	body = binary.BigEndian.AppendUint16(body, 3)      // Metadata
	body = binary.BigEndian.AppendUint16(body, 4)      // version
	body = binary.BigEndian.AppendUint32(body, 1)      // correlation id
	body = binary.BigEndian.AppendUint16(body, 0xffff) // client id: null
	body = binary.BigEndian.AppendUint32(body, 0)      // no topics
	body = append(body, 0)                             // do not make topics
	request := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	if _, err := conn.Write(append(request, body...)); err != nil {
		return fmt.Errorf("asking kafka for metadata: %w", err)
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return fmt.Errorf("asking kafka for metadata: %w", err)
	}
	answer := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<16))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return fmt.Errorf("asking kafka for metadata: %w", err)
	}
	brokers, controller, err := kafkaMetadata(answer)
	if err != nil {
		return fmt.Errorf("reading kafka's metadata: %w", err)
	}
	if brokers == 0 || controller < 0 {
		return fmt.Errorf("kafka has %d brokers and controller %d", brokers, controller)
	}
	return nil
}

// kafkaMetadata reads how many brokers there are and which is the controller.
func kafkaMetadata(answer []byte) (brokers int, controller int32, err error) {
	r := wire{rest: answer}
	r.uint32() // correlation id
	r.uint32() // throttle time
	brokers = int(int32(r.uint32()))
	for range brokers {
		r.uint32() // node id
		r.text()   // host
		r.uint32() // port
		r.text()   // rack
	}
	r.text() // cluster id
	controller = int32(r.uint32())
	if r.short {
		return 0, 0, errors.New("the answer is too short")
	}
	return brokers, controller, nil
}

// wire reads big-endian values from the front of a message. Reading past its
// end gives zero values and sets short.
type wire struct {
	rest  []byte
	short bool
}

func (w *wire) take(n int) []byte {
	if n > len(w.rest) {
		w.rest, w.short = nil, true
		return make([]byte, n)
	}
	taken := w.rest[:n]
	w.rest = w.rest[n:]
	return taken
}

func (w *wire) uint32() uint32 { return binary.BigEndian.Uint32(w.take(4)) }

// text reads a string with its length in two bytes; a length of -1 is null.
func (w *wire) text() string {
	n := int16(binary.BigEndian.Uint16(w.take(2)))
	if n <= 0 {
		return ""
	}
	return string(w.take(int(n)))
}
