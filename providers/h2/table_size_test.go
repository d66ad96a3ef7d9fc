package h2

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// A table size in a write that was taken back is announced again.
func TestTableSizeIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.fill(post("/a"))
		h.send()
		h.read(settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 100}))
		late := post("/late")
		late.Lease = leased(time.Second)
		h.fill(late)
		time.Sleep(2 * time.Second)
		h.wantFrames("nothing", h.send())
		h.fill(post("/b"))
		block := h.c.out[h.c.controls+frameHeader:]
		if want := appendInt([]byte{0x20}, 0x20, 5, 100); !bytes.HasPrefix(block, want) {
			t.Errorf("the block begins with %x, want %x", block[:8], want)
		}
		h.wantFrames("with the smaller table", h.send(), "/b", "DATA")
	})
}

// The table that every server begins with need not be emptied because it says so.
func TestTheUsualTableSizeEmptiesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.read(settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096}))
		if h.c.peerTableLow != 4096 {
			t.Errorf("the lowest size is %d, want the only one that was told, 4096", h.c.peerTableLow)
		}
		h.fill(post("/a"))
		h.send()
		h.read(settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 8192}))
		if h.c.peerTableLow != tableSize {
			t.Errorf("the lowest size is %d, want none of an earlier time", h.c.peerTableLow)
		}
	})
}

// If the table's size was smaller between two writes, that size is announced,
// because the server has emptied its table.
func TestTableSizeThatDippedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.fill(post("/a"))
		h.send()
		size := func(n uint32) []byte { return settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: n}) }
		h.read(size(0), size(4096))
		h.fill(post("/b"))
		block := h.c.out[h.c.controls+frameHeader:]
		if want := appendInt([]byte{0x20}, 0x20, 5, 4096); !bytes.HasPrefix(block, want) {
			t.Errorf("the block begins with %x, want %x", block[:8], want)
		}
		h.wantFrames("with an empty table", h.send(), "/b", "DATA")
		h.fill(post("/c"))
		if first := h.c.out[h.c.controls+frameHeader]; first != 0x80|indexMethodPost {
			t.Errorf("the next block begins with %x: it is told once", first)
		}
		h.wantFrames("and then as before", h.send(), "/c", "DATA")
	})
}
