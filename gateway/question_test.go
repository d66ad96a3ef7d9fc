package gateway

import (
	"slices"
	"testing"
)

// plainBodies are bodies of queries, and whether they are read without encoding/json.
var plainBodies = map[string]bool{
	`{"receipts":["a"]}`: true, ` { "receipts" : [ "a" ,` + "\r\n\t" + `"b c~" ] } ` + "\n": true, `{"receipts":["<a>&"]}`: true, `{"receipts":[""]}`: true,
	`{"receipts":[]}`: false, `{}`: false, ``: false, `{"receipts":["a",]}`: false, `{"receipts":["a"`: false, `{"receipts":["a"]`: false, `{"receipts":["a]}`: false,
	`{"receipts":["a"]}x`: false, `{"receipts":["a"]} {}`: false, `{"receipts":["a"],"x":1}`: false, `{"receipts":["a"],"receipts":["b"]}`: false, `{"Receipts":["a"]}`: false,
	`{"receipts":["\u0061"]}`: false, `{"receipts":["ä"]}`: false, "{\"receipts\":[\"\x7f\"]}": false, "{\"receipts\":[\"a\n\"]}": false, `{"receipts":["a" "b"]}`: false,
	`{"receipts":null}`: false, `{"receipts":[1]}`: false, "\ufeff" + `{"receipts":["a"]}`: false,
}

func TestPlainReceipts(t *testing.T) {
	for body, plain := range plainBodies {
		if got := plainReceipts([]byte(body)); (got != nil) != plain {
			t.Errorf("%q is read as %q", body, got)
		}
		asEncodingJSON(t, body)
	}
}

// asEncodingJSON wants what is read without encoding/json to be what it reads.
func asEncodingJSON(t *testing.T, body string) {
	t.Helper()
	got := plainReceipts([]byte(body))
	if got == nil {
		return
	}
	var q question
	if problem := q.read([]byte(body)); problem != nil || !slices.Equal(got, q.Receipts) {
		t.Errorf("%q is read as %q, and by encoding/json as %q, %v", body, got, q.Receipts, problem)
	}
}

func FuzzPlainReceipts(f *testing.F) {
	for body := range plainBodies {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) { asEncodingJSON(t, body) })
}

// Memory of one answer is used for the next, and nothing of the former is in it.
func TestAnswersUseMemoryAgain(t *testing.T) {
	w := newWorld(t)
	long := w.do(request{method: "POST", path: "/v1/receipts:query", key: keyOrders, body: `{"receipts":["a","b","c","d"]}`})
	short := w.do(request{method: "POST", path: "/v1/receipts:query", key: keyOrders, body: `{"receipts":["e"]}`})
	for a, n := range map[*reply]int{long: 4, short: 1} {
		if results, _ := a.json["results"].([]any); len(results) != n {
			t.Errorf("%d of %d receipts are answered: %s", len(results), n, a.text)
		}
	}
}
