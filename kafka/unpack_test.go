package kafka

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func packed(t *testing.T, records ...*kgo.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zipper(&b)
	for i, r := range records {
		_, _ = z.Write(wireRecord(i, r)) // a buffer takes everything
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWhatRecordsCostTheClient(t *testing.T) {
	small := make([]*kgo.Record, 500_000)
	for i := range small {
		small[i] = &kgo.Record{}
	}
	u, err := newUnpacking()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Decompress(packed(t, small...), kgo.CodecGzip); !errors.Is(err, kgo.ErrMaxDecompress) {
		t.Errorf("unpacking half a million empty records: got %v, want a refusal", err)
	}
	for _, tt := range []struct {
		reason string
		record *kgo.Record
		extra  int
	}{
		{"empty", &kgo.Record{}, recordBytes},
		{"key and value", &kgo.Record{Key: []byte("key"), Value: make([]byte, 300)}, recordBytes},
		{"headers", &kgo.Record{Key: []byte("k"), Headers: []kgo.RecordHeader{{}, {Key: "a", Value: []byte("b")}, {}}}, recordBytes + 3*headerBytes},
	} {
		raw := append(wireRecord(0, tt.record), wireRecord(1, tt.record)...)
		if got, want := costOf(raw), len(raw)+2*tt.extra; got != want {
			t.Errorf("%s: got cost %d for two, want %d", tt.reason, got, want)
		}
		for cut := range raw { // invalid data must not panic
			_ = costOf(raw[cut:])
			_ = costOf(raw[:cut])
		}
	}
}
