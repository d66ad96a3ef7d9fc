package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// Every symbol and every pair of them decodes to itself.
func TestHuffman(t *testing.T) {
	for a := range 256 {
		for b := range 256 {
			want := string([]byte{byte(a), byte(b)})
			if got, ok := huffmanCode.append(nil, hpack.AppendHuffmanString(nil, want)); !ok || string(got) != want {
				t.Fatalf("%q: got %q, %v", want, got, ok)
			}
		}
	}
}

// It takes exactly what the library takes, whatever the bytes are.
func FuzzHuffman(f *testing.F) {
	for _, s := range []string{"", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "\x00\xff\n\\", "/3/device/"} {
		f.Add(hpack.AppendHuffmanString(nil, s))
	}
	f.Add([]byte{0xff})                                          // eight ones: too much padding
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})                        // the end of string
	f.Add([]byte{0x00})                                          // padding of zeros
	f.Add(append([]byte{0xff}, bytes.Repeat([]byte{1}, 200)...)) // long codes
	f.Fuzz(func(t *testing.T, in []byte) {
		want, err := hpack.HuffmanDecodeToString(in)
		got, ok := huffmanCode.append(nil, in)
		if ok != (err == nil) || ok && string(got) != want {
			t.Errorf("%x: got %q, %v; want %q, %v", in, got, ok, want, err)
		}
	})
}

// decodeBlocks gives header blocks to the decoder, and the fields of each.
func decodeBlocks(blocks [][]byte) (all []string, ok bool) {
	d := newHPACKDecoder()
	for _, b := range blocks {
		s := &stream{}
		if !d.decode(b, s) {
			return all, false
		}
		all = append(all, fmt.Sprint(s.req.Method, s.req.Path, s.req.Fields))
	}
	return all, true
}

// referBlocks is decodeBlocks by the library.
func referBlocks(blocks [][]byte) (all []string, ok bool) {
	s := &stream{}
	d := hpack.NewDecoder(headerTable, func(f hpack.HeaderField) { s.field(kindOf(f.Name), f.Name, f.Value) })
	d.SetMaxStringLength(maxHeaderBlock)
	for _, b := range blocks {
		*s = stream{}
		if _, err := d.Write(b); err != nil || d.Close() != nil {
			return all, false
		}
		all = append(all, fmt.Sprint(s.req.Method, s.req.Path, s.req.Fields))
	}
	return all, true
}

// What decodes is the same as with the library, over several blocks of one
// connection, so the tables agree too; and the same is refused.
func FuzzHeaderBlocks(f *testing.F) {
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	block := func(fields ...string) []byte {
		out.Reset()
		for _, text := range fields {
			name, value, sensitive := strings.Cut(text, "=")
			if err := e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: sensitive && name == "secret"}); err != nil {
				f.Fatal(err)
			}
		}
		return bytes.Clone(out.Bytes())
	}
	first := block(":method=POST", ":path=/3/device/00ff", "apns-topic=a", "secret=b", "x="+strings.Repeat("long", 300))
	second := block("apns-topic=a", "apns-topic=b", "x="+strings.Repeat("LONG", 300), "apns-id=1")
	e.SetMaxDynamicTableSize(100)
	third := block("apns-topic=c", ":status=404", "apns-topic=a")
	f.Add(first, second, third)
	f.Add([]byte{0x80}, []byte{}, []byte{})                                    // index 0
	f.Add([]byte{0xbe}, []byte{}, []byte{})                                    // behind the table
	f.Add([]byte{0x3f, 0xe1, 0x1f}, []byte{0x3f, 0xe2, 0x1f}, []byte{})        // table of 4096, and of 4097
	f.Add([]byte{0x40, 1, 'a', 1, 'b', 0x20}, []byte{}, []byte{})              // table size behind a field
	f.Add([]byte{0x40, 0x83, 0xff, 0xff, 0xff}, []byte{}, []byte{})            // no Huffman code
	f.Add([]byte{0x10, 2, 'a'}, []byte{0x0f, 0xff, 0xff, 0xff}, []byte{})      // cut off
	f.Add(first, []byte{0x20}, append([]byte{0x3f, 0xe1, 0x1f, 0x7e}, 1, 'v')) // index that was evicted
	f.Add([]byte{}, []byte{0x41, 0}, []byte{0x3f, 0x30, 0x30})                 // two table sizes, behind an entry
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		blocks := [][]byte{a, b, c}
		want, wantOK := referBlocks(blocks)
		got, ok := decodeBlocks(blocks)
		if ok && !wantOK && twoSizes(blocks[len(want)]) {
			return // the library refuses what TestTwoTableSizes shows to be taken
		}
		if ok != wantOK || !slices.Equal(got, want) {
			t.Errorf("%x:\n got %q %v\nwant %q %v", blocks, got, ok, want, wantOK)
		}
	})
}

// RFC 7541, section 4.2: a block may begin with two updates of the table's size,
// the least that it had in between and the last one. The library refuses the
// second.
func TestTwoTableSizes(t *testing.T) {
	got, ok := decodeBlocks([][]byte{{}, {0x41, 0}, {0x3f, 0x30, 0x30}})
	if want := []string{"[]", "[]", "[]"}; !ok || !slices.Equal(got, want) {
		t.Errorf("got %q %v, want %q taken", got, ok, want)
	}
	if _, ok := decodeBlocks([][]byte{{0x40, 1, 'a', 1, 'b', 0x20}}); ok {
		t.Error("a table size behind a field was taken")
	}
}

// twoSizes reports whether a block begins with two updates of the table's size.
func twoSizes(block []byte) bool {
	const update, mask = 0x20, 0xe0
	if len(block) == 0 || block[0]&mask != update {
		return false
	}
	at := 1
	if block[0]&31 == 31 { // a size of several bytes
		for at < len(block) && block[at]&0x80 != 0 {
			at++
		}
		at++
	}
	return at < len(block) && block[at]&mask == update
}

// The tables agree with the encoder's over a connection that fills them again
// and again, with fields of every length and limits that change.
func TestHeaderTables(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	var blocks [][]byte
	var want []string
	for range 2000 {
		out.Reset()
		if random.IntN(100) == 0 {
			e.SetMaxDynamicTableSize(uint32(random.IntN(headerTable + 1)))
		}
		s := &stream{}
		for range 1 + random.IntN(6) {
			f := hpack.HeaderField{
				Name: fmt.Sprint("x-", random.IntN(8)), Value: strings.Repeat("v", random.IntN(2)*random.IntN(1500)) + fmt.Sprint(random.IntN(40)),
				Sensitive: random.IntN(4) == 0,
			}
			if err := e.WriteField(f); err != nil {
				t.Fatal(err)
			}
			s.field(kindOf(f.Name), f.Name, f.Value)
		}
		blocks = append(blocks, bytes.Clone(out.Bytes()))
		want = append(want, fmt.Sprint(s.req.Method, s.req.Path, s.req.Fields))
	}
	got, ok := decodeBlocks(blocks)
	if !ok {
		t.Fatalf("block %d of %d is refused", len(got), len(blocks))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("block %d: got %.200s, want %.200s", i, got[i], want[i])
		}
	}
}

// devicePath is as long as those of pushes are.
const devicePath = "/3/device/00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

// A connection's requests cost no memory once its tables are filled, also when
// the client uses Huffman's code.
func TestHeaderBlocksAllocateNothing(t *testing.T) {
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	d, s := newHPACKDecoder(), &stream{}
	encode := func() {
		out.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":path", Value: devicePath, Sensitive: true},
			{Name: "apns-topic", Value: "com.example.shop"}, {Name: "apns-id", Value: "0199f3c2-7a54-8c3e-9d2b-000000000001", Sensitive: true},
		} {
			if err := e.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func() {
		*s = stream{text: s.text[:0], req: Request{Fields: s.req.Fields[:0]}}
		if !d.decode(out.Bytes(), s) || s.req.Path != devicePath {
			t.Fatalf("got %q", s.req.Path)
		}
	}
	encode()
	read()
	encode() // with what the table holds now
	if n := testing.AllocsPerRun(100, read); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
