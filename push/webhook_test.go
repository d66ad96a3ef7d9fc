package push

import "testing"

// An event has one id, whoever posts it, and no other has it.
func TestWebhookID(t *testing.T) {
	a := WebhookID("orders", []byte("{}"))
	if a != WebhookID("orders", []byte("{}")) || a == WebhookID("auth", []byte("{}")) || a == WebhookID("orders", []byte("{ }")) {
		t.Errorf("ids such as %s", a)
	}
	if len(a) != len("end_")+24 {
		t.Errorf("id %s", a)
	}
}
