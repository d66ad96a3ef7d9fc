package configs

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size. In files it is a number or a number with a unit: 65536,
// 64KiB, 8MiB, 1GiB.
type Bytes int64

var byteUnits = [...]struct {
	name string
	size Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

var errBytes = errors.New("wants a size such as 65536, 64KiB or 8MiB")

func parseBytes(s string) (Bytes, error) {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/int64(u.size) {
			return 0, errBytes
		}
		return Bytes(n) * u.size, nil
	}
	return 0, errBytes
}

// String gives the size in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range byteUnits[:3] {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
