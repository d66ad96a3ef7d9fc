package h2

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// fields collects the wanted fields that a decoder finds.
type fields struct {
	names []string
	got   []string
}

func (f *fields) field(want int, value []byte) {
	name := ":status"
	if want != wantStatus {
		name = f.names[want]
	}
	f.got = append(f.got, name+"="+string(value))
}

var wantedFields = []string{"apns-id", "date", "retry-after"}

// decodeBoth decodes blocks with our decoder and with x/net's, and fails if
// they differ.
func decodeBoth(t *testing.T, blocks [][]byte) {
	d := newDecoder(wantedFields)
	var theirs, theirAll, ourAll []string
	size := 0
	d.every = func(name, value []byte) { ourAll = append(ourAll, string(name)+"="+string(value)) }
	x := hpack.NewDecoder(tableSize, func(f hpack.HeaderField) {
		size += int(f.Size())
		theirAll = append(theirAll, f.Name+"="+f.Value)
		for _, w := range append(wantedFields, ":status") {
			if f.Name == w {
				theirs = append(theirs, w+"="+f.Value)
			}
		}
	})
	for i, b := range blocks {
		theirs, theirAll, ourAll, size = nil, nil, nil, 0
		_, theirErr := x.Write(b)
		if theirErr == nil {
			theirErr = x.Close()
		}
		ours := &fields{names: wantedFields}
		err := d.decode(b, ours)
		if errors.Is(err, errLongBlock) && size > maxHeaderList {
			return
		}
		if theirErr != nil && err == nil && sizesFirst(b) > 1 {
			return // which RFC 7541 allows (section 4.2), and x/net only while its table is empty
		}
		if (err == nil) != (theirErr == nil) {
			t.Fatalf("block %d %x: ours %v, x/net's %v", i, b, err, theirErr)
		}
		if err != nil {
			return
		}
		if fmt.Sprint(ours.got) != fmt.Sprint(theirs) {
			t.Fatalf("block %d: ours %q, x/net's %q", i, ours.got, theirs)
		}
		if !slices.Equal(ourAll, theirAll) {
			t.Fatalf("block %d, all fields: ours %q, x/net's %q", i, ourAll, theirAll)
		}
		if d.size > d.limit || len(d.arena) > 2*tableSize {
			t.Fatalf("a table of %d bytes in %d", d.size, len(d.arena))
		}
	}
}

// sizesFirst is how many table sizes a block begins with.
func sizesFirst(b []byte) (sizes int) {
	for len(b) > 0 && b[0]&0xe0 == 0x20 {
		_, n := readInt(b, 5)
		if n == 0 {
			break
		}
		b, sizes = b[n:], sizes+1
	}
	return sizes
}

// A block may begin with two sizes of the table, the smallest that was meant since the last
// block and the last one (RFC 7541, section 4.2); what is in the table stays if it fits.
func TestTwoSizesInABlock(t *testing.T) {
	d := newDecoder(nil)
	var got []string
	d.every = func(name, value []byte) { got = append(got, string(name)+"="+string(value)) }
	for _, block := range [][]byte{{0x40, 1, 'a', 1, 'b'}, {0x3f, 0x30, 0x3f, 0xe1, 0x1f, 0xbe}} {
		if err := d.decode(block, nil); err != nil {
			t.Fatalf("%x: %v", block, err)
		}
	}
	if fmt.Sprint(got) != "[a=b a=b]" || d.limit != tableSize {
		t.Errorf("got %q, a table of %d", got, d.limit)
	}
	if err := d.decode([]byte{0x20, 0x3f, 0xe1, 0x1f, 0xbe}, nil); err == nil {
		t.Error("an entry has outlived a table of nothing")
	}
}

// Blocks that end too early, have a wrong index or announce too much do not
// decode.
func TestBrokenBlocks(t *testing.T) {
	for why, row := range map[string]struct {
		block []byte
		fine  bool
	}{
		"an index":                          {[]byte{0x88}, true},
		"no index":                          {[]byte{0x80}, false},
		"an index that is cut":              {[]byte{0xff}, false},
		"an index without an end":           {bytes.Repeat([]byte{0xff}, 12), false},
		"the last of the static table":      {[]byte{0xbd}, true},
		"the first of an empty table":       {[]byte{0xbe}, false},
		"the only entry":                    {[]byte{0x40, 1, 'a', 1, 'b', 0xbe}, true},
		"one before it":                     {[]byte{0x40, 1, 'a', 1, 'b', 0xbf}, false},
		"a name's index":                    {[]byte{0x48, 3, '2', '0', '0'}, true},
		"a name's index that is cut":        {[]byte{0x7f}, false},
		"a name's index beyond the table":   {[]byte{0x7e, 0}, false},
		"no name":                           {[]byte{0x40}, false},
		"a name that is cut":                {[]byte{0x40, 2, 'a'}, false},
		"no value":                          {[]byte{0x40, 1, 'a'}, false},
		"a value that is cut":               {[]byte{0x40, 1, 'a', 2, 'b'}, false},
		"an empty value":                    {[]byte{0x40, 1, 'a', 0}, true},
		"a name in Huffman's code":          {[]byte{0x00, 0x81, 0x1f, 0}, true}, // "a", and ones
		"one that does not end in ones":     {[]byte{0x00, 0x81, 0x18, 0}, false},
		"a value that does not end in ones": {[]byte{0x00, 1, 'a', 0x81, 0x18}, false},
		"the largest table":                 {[]byte{0x3f, 0xe1, 0x1f, 0x88}, true},
		"a larger one":                      {[]byte{0x3f, 0xe2, 0x1f, 0x88}, false},
		"a size that is cut":                {[]byte{0x3f}, false},
		"a table of nothing":                {[]byte{0x20, 0x40, 1, 'a', 1, 'b', 0xbe}, false},
		"a size of ten bytes":               {append(append([]byte{0x3f}, bytes.Repeat([]byte{0x80}, 9)...), 0, 0x88), false},
		"a size behind an entry":            {[]byte{0x40, 1, 'a', 1, 'b', 0x20}, false},
	} {
		if err := newDecoder(nil).decode(row.block, nil); (err == nil) != row.fine || err != nil && err != errBadBlock {
			t.Errorf("%s: %v", why, err)
		}
		decodeBoth(t, [][]byte{row.block})
	}
}

func FuzzHPACKDecoder(f *testing.F) {
	var w bytes.Buffer
	e := hpack.NewEncoder(&w)
	for _, v := range []string{"one", "another value that is long enough for Huffman", ""} {
		e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
		e.WriteField(hpack.HeaderField{Name: "apns-id", Value: v})
		e.WriteField(hpack.HeaderField{Name: "date", Value: v, Sensitive: true})
		f.Add(w.Bytes(), uint8(7))
	}
	f.Add([]byte{0x20, 0x3f, 0xe1, 0x1f, 0x88}, uint8(2))
	f.Add([]byte{0x40, 1, 'x', 1, 'y', 0xbe, 0x20, 0xbe}, uint8(4))
	f.Add([]byte("?0?0A\x00"), uint8('a'))
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		n := min(int(cut), len(in))
		decodeBoth(t, [][]byte{in[:n], in[n:], in})
	})
}

// Long random dialogues, with evictions and table sizes, decode alike.
func TestDecoderAgreesOverALongTime(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		var w bytes.Buffer
		e := hpack.NewEncoder(&w)
		var blocks [][]byte
		for range 400 {
			w.Reset()
			if random.IntN(20) == 0 {
				e.SetMaxDynamicTableSize(uint32(random.IntN(tableSize + 1)))
			}
			e.WriteField(hpack.HeaderField{Name: ":status", Value: []string{"200", "410", "299"}[random.IntN(3)]})
			for range random.IntN(6) {
				e.WriteField(hpack.HeaderField{
					Name:  []string{"apns-id", "date", "x-unique", "server", fmt.Sprint("n", random.IntN(50))}[random.IntN(5)],
					Value: string(bytes.Repeat([]byte{byte('a' + random.IntN(26))}, random.IntN(1<<random.IntN(11)))), Sensitive: random.IntN(5) == 0,
				})
			}
			blocks = append(blocks, bytes.Clone(w.Bytes()))
		}
		decodeBoth(t, blocks)
	}
}

// A server that wants no table at first and one later gets blocks that it can read.
func TestATableThatComesLater(t *testing.T) {
	e := newEncoder("push.example")
	var fields int
	d := hpack.NewDecoder(tableSize, func(f hpack.HeaderField) {
		if f.Name == "apns-topic" && f.Value == "com.example.shop" {
			fields++
		}
	})
	r := &Request{Path: []byte("/3/device/ab"), Header: []Field{{Name: "apns-topic", Value: []byte("com.example.shop"), Indexing: Indexed}}}
	for _, limit := range []int{0, tableSize, 0, tableSize} {
		e.setLimit(limit)
		if e.size < 0 {
			t.Fatalf("the table of %d bytes has %d", limit, e.size)
		}
		for range 3 {
			if _, err := d.Write(e.appendRequest(nil, r)); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil { // the end of a block
				t.Fatal(err)
			}
		}
	}
	if fields != 12 {
		t.Errorf("%d of 12 topics were read", fields)
	}
}

// x/net decodes what we encode to the same fields. Secrets never enter the
// table, and a stable header takes one byte from its second use on.
func TestEncoderRoundTrip(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		e := newEncoder("push.example")
		var got []hpack.HeaderField
		d := hpack.NewDecoder(tableSize, func(f hpack.HeaderField) { got = append(got, f) })
		for range 500 {
			if random.IntN(10) == 0 {
				n := random.IntN(2 * tableSize)
				e.setLimit(n)
				d.SetAllowedMaxDynamicTableSize(uint32(min(n, tableSize)))
			}
			r := &Request{Path: fmt.Appendf(nil, "/3/device/%d", random.IntN(1000)), Body: make([]byte, random.IntN(3)*100)}
			n := random.IntN(9)
			if random.IntN(20) == 0 {
				n += 20 // more than the encoder remembers
			}
			for range n {
				r.Header = append(r.Header, Field{
					Name:     []string{"authorization", "apns-id", "apns-topic", fmt.Sprint("n", random.IntN(40))}[random.IntN(4)],
					Value:    bytes.Repeat([]byte{byte('a' + random.IntN(3))}, random.IntN(1<<random.IntN(12))),
					Indexing: Indexing(random.IntN(3)),
				})
			}
			got = nil
			if _, err := d.Write(e.appendRequest(nil, r)); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			want := []string{":method=POST", ":scheme=https", ":authority=push.example", ":path=" + string(r.Path)}
			for _, f := range r.Header {
				want = append(want, f.Name+"="+string(f.Value))
			}
			want = append(want, fmt.Sprint("content-length=", len(r.Body)))
			var have []string
			for i, f := range got {
				have = append(have, f.Name+"="+f.Value)
				if h := i - 4; h >= 0 && h < len(r.Header) && r.Header[h].Indexing == NeverIndexed && !f.Sensitive {
					t.Fatalf("%s is not marked as secret", f.Name)
				}
			}
			if fmt.Sprint(have) != fmt.Sprint(want) {
				t.Fatalf("decoded %q, want %q", have, want)
			}
		}
	}
}

func TestStableHeadersCostAByte(t *testing.T) {
	e := newEncoder("push.example")
	r := &Request{Path: []byte("/x"), Header: []Field{
		{Name: "authorization", Value: bytes.Repeat([]byte("t"), 250)},
		{Name: "apns-topic", Value: []byte("com.example.shop")},
		{Name: "apns-id", Value: []byte("12345678"), Indexing: NotIndexed},
		{Name: "secret", Value: []byte("hidden"), Indexing: NeverIndexed},
	}}
	first, second := e.appendRequest(nil, r), e.appendRequest(nil, r)
	// method, scheme, authority: 3; path 1+1+2; two stable: 2; apns-id 2+1+8;
	// secret, with its name in Huffman code: 1+1+4+1+6; content-length 2+1+1.
	if len(second) > 38 || len(first) < 280 {
		t.Errorf("%d bytes, then %d", len(first), len(second))
	}
	for n := e.oldest; n < e.added; n++ {
		if string(e.entries[n&(encoderEntries-1)].value) == "hidden" {
			t.Error("a secret is in the table")
		}
	}
}

// A name in the static table is not written out: it is the index of the first
// entry with that name.
func TestStaticNamesAreIndices(t *testing.T) {
	for i, f := range staticTable {
		first := slices.IndexFunc(staticTable[:], func(other struct{ name, value string }) bool { return other.name == f.name })
		if got := staticNames[f.name]; got != uint64(first+1) {
			t.Errorf("%s, entry %d: index %d, want %d", f.name, i+1, got, first+1)
		}
	}
	r := &Request{Path: []byte("/x"), Header: []Field{{Name: "authorization", Value: []byte("secret"), Indexing: NeverIndexed}}}
	want := appendString(appendInt(nil, 0x10, 4, 23), []byte("secret"))
	if b := newEncoder("push.example").appendRequest(nil, r); !bytes.Contains(b, want) {
		t.Errorf("%x has no %x", b, want)
	}
}

// A field evicts the entry whose name it uses, while the table's bytes are
// moved: the name is still correct.
func TestNameOfAnEvictedEntry(t *testing.T) {
	literal := func(name string, n int) []byte { // with a new name
		return appendString(appendName([]byte(nil), 0x40, 6, 0, name), bytes.Repeat([]byte("v"), n))
	}
	decodeBoth(t, [][]byte{
		literal("filler", 1150), literal("oldest", 950), literal("x", 1450), literal("y", 1450),
		appendString(appendInt(nil, 0x40, 6, 64), bytes.Repeat([]byte("w"), 3200)),
	})
}
