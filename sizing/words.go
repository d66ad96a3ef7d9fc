package sizing

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// num is a number as people read it: 17.5, 3,500,000. Of what is not whole three
// digits are enough.
func num(x float64) string {
	digits := 0
	if a := math.Abs(x); a != math.Trunc(a) && a < 1000 && a > 0 {
		digits = max(0, 2-int(math.Floor(math.Log10(a))))
	}
	s := strconv.FormatFloat(x, 'f', digits, 64)
	if strings.Contains(s, ".") {
		return strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// scaled is x in the largest unit of which there is at least one.
func scaled(x float64, units []unit) string {
	for _, u := range units {
		if x >= u.size*(1-1e-9) {
			return num(x/u.size) + " " + u.name
		}
	}
	last := units[len(units)-1]
	return num(x/last.size) + " " + last.name
}

type unit struct {
	name string
	size float64
}

var (
	byteUnits = []unit{{"PB", 1e15}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}
	timeUnits = []unit{{"d", day}, {"h", hour}, {"s", 1}, {"ms", 1e-3}, {"us", micro}}
)

func size(x float64) string    { return scaled(x, byteUnits) }
func seconds(x float64) string { return scaled(x, timeUnits) }
func share(x float64) string   { return num(x*100) + " %" }
func rate(x float64) string    { return num(x) + "/s" }

// Text is a value of a kind as people read it, and as Parse takes it: 3,500,000, 0.7,
// 21.2us, 64GB.
func (k Kind) Text(x float64) string {
	switch k {
	case Duration:
		return strings.ReplaceAll(seconds(x), " ", "")
	case Bytes:
		return strings.ReplaceAll(size(x), " ", "")
	}
	return num(x)
}

// Parse reads a value of a kind. Numbers may have commas and end in k, M, G or T, shares
// in %, durations in us, ms, s, m, h or d, sizes in B, kB to PB or KiB to TiB. A duration
// without a unit is refused, unless it is 0.
func (k Kind) Parse(s string) (float64, error) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµ%")
	name := s[len(digits):]
	x, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", ""), 64)
	scale, known := suffixes[k][name]
	if err != nil || !known || k == Duration && name == "" && x != 0 {
		return 0, fmt.Errorf("%q: want a number%s", s, examples[k])
	}
	return x * scale, nil
}

var (
	thousands = map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
	suffixes  = map[Kind]map[string]float64{
		Number:   thousands,
		Whole:    thousands,
		Share:    {"": 1, "%": 0.01},
		Duration: {"": 1, "us": micro, "µs": micro, "ms": 1e-3, "s": 1, "m": minute, "h": hour, "d": day},
		Bytes: {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
			"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40},
	}
	examples = map[Kind]string{
		Number: ", such as 3.5M or 8G", Whole: ", such as 18 or 40k", Share: ", such as 0.5 or 50%",
		Duration: " with a unit, such as 50ms or 168h", Bytes: ", such as 480, 64GB or 64GiB",
	}
)

// up is the next whole number; what computing in floating point adds to a whole one
// does not make it another.
func up(x float64) float64 { return math.Ceil(x - 1e-12*max(1, math.Abs(x))) }

// count is a number with its noun: 1 worker, 18 workers.
func count(x float64, noun string) string {
	if x == 1 {
		return "1 " + noun
	}
	return num(x) + " " + noun + "s"
}

// Verdict says in a sentence what the plan comes to.
func (p *Plan) Verdict() string {
	s := fmt.Sprintf("workers %s, partitions %s, connections of a worker %s to APNs", num(p.Workers), num(p.Partitions), num(p.APNsConnections))
	if p.FCMConnections > 0 {
		s += fmt.Sprintf(" and %s to FCM", num(p.FCMConnections))
	}
	return s + fmt.Sprintf("; Redis %s nodes for %s; Cassandra %s nodes, %s of disk; Kafka %s of disk", num(p.RedisNodes), Bytes.Text(p.RedisBytes),
		num(p.CassandraNodes), Bytes.Text(p.CassandraBytes/p.Input.CassandraFull), Bytes.Text(p.KafkaBytes))
}

// String says what there is of a parameter and what would suffice: "workers 18, needed 20".
func (s Shortage) String() string {
	for _, p := range Parameters() {
		if p.Name == s.Name {
			return fmt.Sprintf("%s %s, needed %s", s.Name, p.Kind.Text(s.Have), p.Kind.Text(s.Need))
		}
	}
	return s.Name
}
