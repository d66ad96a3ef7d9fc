package gateway

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// anything sets a value, and all that is in it, to something or, often, to nothing.
func anything(draw *rand.Rand, v reflect.Value) {
	if draw.IntN(4) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"x", "DELIVERED", `"quoted" \ and /`, "Grüße, 雪", "a\x00b\x1f\x7f\u2028", "\xff no UTF-8", "<b>&amp;"}[draw.IntN(7)])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(draw.Int64N(3))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		anything(draw, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), draw.IntN(3), 3))
		for i := range v.Len() {
			anything(draw, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]int64{"left": 3, "pull": 1}))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			zone := []*time.Location{time.UTC, time.FixedZone("", 5*3600+1800)}[draw.IntN(2)]
			v.Set(reflect.ValueOf(time.UnixMilli(1_790_000_000_000 + draw.Int64N(5)*250).In(zone)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				anything(draw, v.Field(i))
			}
		}
	}
}

// Whatever a report says, its text is that of encoding/json; < and > and & are as they are.
func TestReportsAsEncodingJSONHasThem(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	full := map[string]bool{}
	for range 3000 {
		r := Report{Devices: []Device{}}
		anything(draw, reflect.ValueOf(&r).Elem())
		if r.Devices == nil {
			r.Devices = []Device{}
		}
		want, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		var wanted, got map[string]any
		text := r.append([]byte("before"))[len("before"):]
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if err := json.Unmarshal(want, &wanted); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, wanted) {
			t.Fatalf("got  %s\nwant %s", text, want)
		}
		for name := range wanted {
			full[name] = true
		}
	}
	for i := range reflect.TypeFor[Report]().NumField() {
		if f := reflect.TypeFor[Report]().Field(i); f.IsExported() && !full[name(f)] {
			t.Errorf("no report had %s", f.Name)
		}
	}
}

// name is the name of a member.
func name(f reflect.StructField) string {
	for i, c := range f.Tag.Get("json") {
		if c == ',' {
			return f.Tag.Get("json")[:i]
		}
	}
	return f.Tag.Get("json")
}
