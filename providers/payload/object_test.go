package payload

import (
	"encoding/json"
	"testing"
)

func TestMembers(t *testing.T) {
	read := func() Object {
		var o Object
		if err := json.Unmarshal([]byte(`{"text":"a","empty":"","number":1.0,"object":{"b":"c"},"null":null}`), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for key, want := range map[string]string{"text": "a", "empty": "", "number": "", "object": "", "null": "", "none": ""} {
		o := read()
		_, had := o[key]
		got := o.Take(key)
		if _, has := o[key]; got != want || has != (had && want == "") {
			t.Errorf("took %q as %q; it is there still: %v", key, got, has)
		}
	}
	for _, key := range []string{"text", "number", "null", "none"} {
		if inner := read().Inner(key); len(inner) > 0 {
			t.Errorf("%q is an object: %s", key, inner)
		}
	}
	o := read()
	inner := o.Inner("object")
	if err := o.Put("object", inner); err != nil || string(o["object"]) != `{"b":"c"}` || string(o["number"]) != "1.0" {
		t.Errorf("%s, %v", o, err)
	}
	inner.Take("b")
	if err := o.Put("object", inner); err != nil || o["object"] != nil {
		t.Errorf("what is empty stays: %s, %v", o, err)
	}
	if err := o.Put("bad", Object{"x": json.RawMessage("{")}); err == nil || o["bad"] != nil {
		t.Errorf("no JSON is put: %s, %v", o, err)
	}
}
