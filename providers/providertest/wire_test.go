package providertest

import (
	"maps"
	"net/http/httptest"
	"testing"
)

// What these find is what the providers' differential tests can find.
func TestRequestsThatDiffer(t *testing.T) {
	const path, body = "/3/device/x", `{"aps":{"alert":{"title":"t"},"badge":0},"k":"v"}`
	for _, k := range []struct {
		why        string
		path, body string
		header     [2]string
		want       Differences
	}{
		{"nothing", path, `{"k":"v", "aps":{"badge":0,"alert":{"title":"t"}}}`, [2]string{"User-Agent", "x"}, Differences{}},
		{"path", path + "?", body, [2]string{}, Differences{":path": {path, path + "?"}}},
		{"header", path, body, [2]string{"Apns-Id", "1"}, Differences{"apns-id": {Absent, "1"}}},
		{"value", path, `{"aps":{"alert":{"title":"t"},"badge":1},"k":"v"}`, [2]string{}, Differences{"body.aps.badge": {"0", "1"}}},
		{"type", path, `{"aps":{"alert":{"title":"t"},"badge":"0"},"k":"v"}`, [2]string{}, Differences{"body.aps.badge": {"0", `"0"`}}},
		{"null is not absent", path, `{"aps":{"alert":{"title":"t"},"badge":0},"k":"v","n":null}`, [2]string{}, Differences{"body.n": {Absent, "null"}}},
		{"an empty object is not absent", path, `{"aps":{"alert":{"title":"t"},"badge":0},"k":"v","o":{}}`, [2]string{}, Differences{"body.o": {Absent, "{}"}}},
		{"object", path, `{"aps":"t","k":"v"}`, [2]string{}, Differences{"body.aps": {Absent, `"t"`}, "body.aps.badge": {"0", Absent}, "body.aps.alert.title": {`"t"`, Absent}}},
	} {
		ours, theirs := httptest.NewRequest("POST", path, nil), httptest.NewRequest("POST", k.path, nil)
		if k.header[0] != "" {
			theirs.Header.Set(k.header[0], k.header[1])
		}
		a, err := read(ours, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		b, err := read(theirs, []byte(k.body))
		if err != nil {
			t.Fatal(err)
		}
		if got := Compare(a, b); !maps.Equal(got, k.want) {
			t.Errorf("%s:%v\nwant%v", k.why, got, k.want)
		}
	}
	if w, err := read(httptest.NewRequest("POST", path, nil), []byte(`{"a"`)); err == nil {
		t.Errorf("broken JSON is read as %v", w)
	}
}

func TestWhatIsExpected(t *testing.T) {
	always := Differences{"id": {"1", Absent}, "pf": {"x", "y"}}
	for _, k := range []struct {
		why      string
		expected Differences
		want     Differences
	}{
		{"always", nil, always},
		{"one more", Differences{"k": {"a", "b"}}, Differences{"id": {"1", Absent}, "pf": {"x", "y"}, "k": {"a", "b"}}},
		{"another value", Differences{"id": {"2", Absent}}, Differences{"id": {"2", Absent}, "pf": {"x", "y"}}},
		{"one less", Differences{"id": {"1", "1"}}, Differences{"pf": {"x", "y"}}},
	} {
		if got := always.and(k.expected); !maps.Equal(got, k.want) {
			t.Errorf("%s:%v\nwant%v", k.why, got, k.want)
		}
	}
}
