package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Shape is the form of a Distribution.
type Shape uint8

// The shapes.
const (
	Fixed     Shape = iota // always A
	Uniform                // from A to B
	LogNormal              // median A, 99 % within B
	TwoPeaked              // around A, but a Share of them around B
)

// Distribution is how long answers take. The zero value is at once.
type Distribution struct {
	Shape Shape
	A, B  time.Duration
	Share float64 // of TwoPeaked, 0 to 1
}

// Each peak of TwoPeaked is a tenth of its middle wide, to either side.
const peakWidth = 0.1

// ParseDistribution reads "50ms", "uniform:20ms,80ms", "lognormal:50ms,400ms"
// (median and 99th percentile) or "peaks:50ms,2s,0.01" (two middles and the
// share of the second).
func ParseDistribution(text string) (Distribution, error) {
	shape, rest, named := strings.Cut(text, ":")
	d := Distribution{}
	if !named {
		rest = text
	} else if n, ok := map[string]Shape{"fixed": Fixed, "uniform": Uniform, "lognormal": LogNormal, "peaks": TwoPeaked}[shape]; ok {
		d.Shape = n
	} else {
		return d, fmt.Errorf("latency %q: no shape of that name (fixed, uniform, lognormal, peaks)", text)
	}
	parts := strings.Split(rest, ",")
	if len(parts) != [...]int{Fixed: 1, Uniform: 2, LogNormal: 2, TwoPeaked: 3}[d.Shape] {
		return d, fmt.Errorf("latency %q: wrong number of values", text)
	}
	var err error
	for i, dst := range []*time.Duration{&d.A, &d.B} {
		if i < len(parts) && err == nil {
			*dst, err = time.ParseDuration(parts[i])
		}
	}
	if d.Shape == TwoPeaked && err == nil {
		d.Share, err = strconv.ParseFloat(parts[2], 64)
	}
	if err == nil {
		err = d.Validate()
	}
	if err != nil {
		return d, fmt.Errorf("latency %q: %w", text, err)
	}
	return d, nil
}

// Validate rejects what is no distribution.
func (d Distribution) Validate() error {
	switch {
	case d.Shape > TwoPeaked:
		return fmt.Errorf("unknown shape")
	case d.A < 0 || d.B < 0:
		return fmt.Errorf("negative time")
	case (d.Shape == Uniform || d.Shape == LogNormal) && d.B < d.A:
		return fmt.Errorf("%v is under %v", d.B, d.A)
	case d.Shape == LogNormal && d.A == 0:
		return fmt.Errorf("a median of 0")
	case !(d.Share >= 0 && d.Share <= 1):
		return fmt.Errorf("share %v is not between 0 and 1", d.Share)
	}
	return nil
}

// at is the value for two independent draws from [0,1).
func (d *Distribution) at(u, v float64) time.Duration {
	switch d.Shape {
	case Uniform:
		return d.A + time.Duration(u*float64(d.B-d.A))
	case LogNormal:
		const z99 = 2.3263478740408408 // of the standard normal distribution
		sigma := math.Log(float64(d.B)/float64(d.A)) / z99
		normal := math.Sqrt(-2*math.Log(1-u)) * math.Cos(2*math.Pi*v)
		return time.Duration(min(float64(d.A)*math.Exp(sigma*normal), float64(time.Hour)))
	case TwoPeaked:
		middle := d.A
		if u < d.Share {
			middle = d.B
		}
		return middle + time.Duration((2*v-1)*peakWidth*float64(middle))
	}
	return d.A
}

// chancy reports whether it needs a draw.
func (d *Distribution) chancy() bool { return d.Shape != Fixed }
