package fcm

import (
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/payload"
)

// FuzzBodies has any record that the decoder takes encoded: what is sent is
// JSON without a key twice, for our token alone, and with our id.
func FuzzBodies(f *testing.F) {
	for _, members := range []string{
		`"title":"t","collapse_key":"a \"b\"","badge":1,"data":{"k":"\u0413\ud83d"}`,
		`"data":{"image":"x"},"image":"y","locale":"de","fcm":{"data":{"k":"v"},"apns":{"headers":{"apns-priority":"5"},"payload":{"aps":{"alert":"x"}}},"webpush":{"headers":{"TTL":"1"},"notification":{"tag":"x"}}}`,
		`"push_type":"background","collapse_key":"ü","fcm":{"android":{"collapse_key":"z","notification":{"\u0074ag":"x"}},"\u0061pns":{"payload":{"\u0061ps":{"badge":2}}}}`,
	} {
		f.Add(members, false)
	}
	f.Fuzz(func(t *testing.T, members string, derived bool) {
		d := delivery(pipeline.Message{})
		if pipeline.Decode([]byte(`{"id":"n1","app":"shop","user_id":"u1",`+members+`}`), &d.Item.Message) != nil {
			return
		}
		d.Item.Derived, d.Expires = derived, time.Now().Add(time.Hour)
		r := &exchange.Draft{}
		if _, ok := testCodec().Encode(d, r); !ok {
			return
		}
		// The decoder knows what a key twice is, and that a message is JSON.
		message := strings.TrimSuffix(strings.TrimPrefix(string(r.Body), `{"message":`), "}")
		if defect := pipeline.Decode([]byte(`{"id":"n1","app":"shop","user_id":"u1","x":`+message+`}`), new(pipeline.Message)); defect != nil && defect.Reason != pipeline.TooLarge {
			t.Fatalf("%v: %s", defect, r.Body)
		}
		find := func(path string) string { return string(payload.Find([]byte(message), strings.Fields(path)...)) }
		for _, path := range []string{"topic", "condition", "fid", "name", "android data pf_id", "webpush data pf_id", "apns payload pf_id", "apns live_activity_token", "apns liveActivityToken"} {
			if find(path) != "" {
				t.Errorf("%s: %s", path, r.Body)
			}
		}
		if find("token") != `"`+registration+`"` || find("data pf_id") != `"n1"` {
			t.Errorf("%s", r.Body)
		}
	})
}
