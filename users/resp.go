package users

import (
	"errors"
	"strconv"
)

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

// length reads a line "<kind><number>\r\n".
func length(raw []byte, kind byte) (int, []byte, error) {
	if len(raw) == 0 || raw[0] != kind {
		return 0, raw, errReply
	}
	for i := 1; i+1 < len(raw) && i < 12; i++ {
		if raw[i] == '\r' && raw[i+1] == '\n' {
			n, err := strconv.Atoi(string(raw[1:i]))
			if err != nil || n < -1 {
				return 0, raw, errReply
			}
			return n, raw[i+2:], nil
		}
	}
	return 0, raw, errReply
}
