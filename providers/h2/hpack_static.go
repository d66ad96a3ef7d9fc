package h2

// tableSize is the dynamic table's size in bytes, in both directions, unless
// the server asks for less: RFC 7541's default.
const tableSize = 4096

// entryOverhead is what RFC 7541 counts for an entry besides its bytes.
const entryOverhead = 32

// staticTable is RFC 7541's appendix A; index 1 is its first entry.
var staticTable = [...]struct{ name, value string }{
	{":authority", ""}, {":method", "GET"}, {":method", "POST"}, {":path", "/"}, {":path", "/index.html"},
	{":scheme", "http"}, {":scheme", "https"}, {":status", "200"}, {":status", "204"}, {":status", "206"},
	{":status", "304"}, {":status", "400"}, {":status", "404"}, {":status", "500"}, {"accept-charset", ""},
	{"accept-encoding", "gzip, deflate"}, {"accept-language", ""}, {"accept-ranges", ""}, {"accept", ""},
	{"access-control-allow-origin", ""}, {"age", ""}, {"allow", ""}, {"authorization", ""}, {"cache-control", ""},
	{"content-disposition", ""}, {"content-encoding", ""}, {"content-language", ""}, {"content-length", ""},
	{"content-location", ""}, {"content-range", ""}, {"content-type", ""}, {"cookie", ""}, {"date", ""}, {"etag", ""},
	{"expect", ""}, {"expires", ""}, {"from", ""}, {"host", ""}, {"if-match", ""}, {"if-modified-since", ""},
	{"if-none-match", ""}, {"if-range", ""}, {"if-unmodified-since", ""}, {"last-modified", ""}, {"link", ""},
	{"location", ""}, {"max-forwards", ""}, {"proxy-authenticate", ""}, {"proxy-authorization", ""}, {"range", ""},
	{"referer", ""}, {"refresh", ""}, {"retry-after", ""}, {"server", ""}, {"set-cookie", ""},
	{"strict-transport-security", ""}, {"transfer-encoding", ""}, {"user-agent", ""}, {"vary", ""}, {"via", ""},
	{"www-authenticate", ""},
}

// Indices that every request uses.
const (
	indexAuthority     = 1
	indexMethodGet     = 2
	indexMethodPost    = 3
	indexPath          = 4
	indexSchemeHTTPS   = 7
	indexContentLength = 28
)

// staticNames finds the first static entry with a name.
var staticNames = func() map[string]uint64 {
	m := make(map[string]uint64, len(staticTable))
	for i := len(staticTable) - 1; i >= 0; i-- {
		m[staticTable[i].name] = uint64(i + 1)
	}
	return m
}()

// appendInt appends an integer with a prefix of n bits, below the pattern that
// the representation has above them (RFC 7541, 5.1).
func appendInt(b []byte, pattern byte, n uint, v uint64) []byte {
	limit := uint64(1)<<n - 1
	if v < limit {
		return append(b, pattern|byte(v))
	}
	b = append(b, pattern|byte(limit))
	for v -= limit; v >= 128; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// readInt reads an integer with a prefix of n bits from the start of p, and
// returns its length, 0 when it is cut off or longer than any we can use.
func readInt(p []byte, n uint) (v uint64, length int) {
	if len(p) == 0 {
		return 0, 0
	}
	limit := uint64(1)<<n - 1
	if v = uint64(p[0]) & limit; v < limit {
		return v, 1
	}
	for i, shift := 1, uint(0); i < len(p) && shift < 63; i, shift = i+1, shift+7 {
		v += uint64(p[i]&0x7f) << shift
		if p[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
