package wiring

import (
	"reflect"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
)

// Every number of a gate comes from the configuration: the defaults are the
// pipeline's own, and each of them, changed, arrives.
func TestGatesAreAsConfigured(t *testing.T) {
	want := gates.DefaultOptions()
	want.Jitter = nil
	c := configs.Default()
	got := Gates(c)
	got.Jitter = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the defaults make\n%+v, want\n%+v", got, want)
	}
	for _, path := range numbersOf(reflect.TypeFor[configs.Gates](), nil) {
		c := configs.Default()
		switch v := reflect.ValueOf(&c.Gates).Elem().FieldByIndex(path); v.Kind() {
		case reflect.Float64:
			v.SetFloat(v.Float() / 2)
		default:
			v.SetInt(v.Int() + 1)
		}
		got := Gates(c)
		got.Jitter = nil
		if reflect.DeepEqual(got, want) {
			t.Errorf("%s is not used", reflect.TypeFor[configs.Gates]().FieldByIndex(path).Name)
		}
	}
}

// numbersOf are the places of all numbers in a struct.
func numbersOf(s reflect.Type, at []int) (paths [][]int) {
	for i := range s.NumField() {
		path := append(append([]int(nil), at...), i)
		if f := s.Field(i); f.Type.Kind() == reflect.Struct {
			paths = append(paths, numbersOf(f.Type, path)...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}

// What a lane says about sends of unknown outcome arrives, and at_most_once
// drops them whatever it says; so do the retries.
func TestPolicyIsAsConfigured(t *testing.T) {
	c := configs.Default()
	c.Retries.Max, c.Retries.Tiers = 2, []time.Duration{time.Second, time.Minute}
	for _, row := range []struct {
		mode, ambiguous string
		drops           bool
	}{
		{configs.AtLeastOnce, "resend", false},
		{configs.AtLeastOnce, configs.AmbiguousUnknown, true},
		{configs.EffectivelyOnce, "resend", false},
		{configs.EffectivelyOnce, configs.AmbiguousUnknown, true},
		{configs.AtMostOnce, "resend", true},
		{configs.AtMostOnce, configs.AmbiguousUnknown, true},
	} {
		l := c.Lanes[0]
		l.Mode, l.Ambiguous = row.mode, row.ambiguous
		want := pipeline.Policy{MaxRetries: 2, RetryDelays: c.Retries.Tiers, DropAmbiguous: row.drops}
		if got := Policy(c, l); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %s: %+v, want %+v", row.mode, row.ambiguous, got, want)
		}
	}
}
