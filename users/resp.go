package users

import "errors"

// errReply says that the bytes are not the answer to an MGET.
var errReply = errors.New("unexpected reply")

// bulks cuts the values of an MGET's raw reply (RESP2 or RESP3) and appends
// them to dst; a missing value is nil. The typed reply of the client library
// costs two allocations a value, this none.
func bulks(raw []byte, dst [][]byte) ([][]byte, error) {
	n, raw, err := length(raw, '*')
	if err != nil {
		return dst, err
	}
	for range n {
		if len(raw) >= 3 && raw[0] == '_' { // RESP3 null
			dst, raw = append(dst, nil), raw[3:]
			continue
		}
		size := 0
		if size, raw, err = length(raw, '$'); err != nil {
			return dst, err
		}
		if size < 0 {
			dst = append(dst, nil)
			continue
		}
		if len(raw) < size+2 {
			return dst, errReply
		}
		dst, raw = append(dst, raw[:size:size]), raw[size+2:]
	}
	if len(raw) != 0 {
		return dst, errReply
	}
	return dst, nil
}

// length reads a line "<kind><number>\r\n"; -1 is the only number below 0.
func length(raw []byte, kind byte) (int, []byte, error) {
	if len(raw) < 4 || raw[0] != kind {
		return 0, raw, errReply
	}
	if raw[1] == '-' {
		if raw[2] != '1' || len(raw) < 5 || raw[3] != '\r' || raw[4] != '\n' {
			return 0, raw, errReply
		}
		return -1, raw[5:], nil
	}
	n := 0
	for i := 1; i+1 < len(raw) && i <= digits; i++ {
		switch d := raw[i] - '0'; {
		case d <= 9:
			n = 10*n + int(d)
		case i > 1 && raw[i] == '\r' && raw[i+1] == '\n':
			return n, raw[i+2:], nil
		default:
			return 0, raw, errReply
		}
	}
	return 0, raw, errReply
}

// digits are more than those of the longest value of Redis, 512 MiB.
const digits = 11
