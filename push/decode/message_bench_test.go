package decode

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// typicalRecord is what a shop sends for an order: 480 bytes.
const typicalRecord = `{"id":"0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21","app":"shop","user_id":"u-48213377","type":"order_update",` +
	`"priority":"high","sender_id":"orders","title":"Your order is on its way","body":"Parcel 1 of 2 left our warehouse in Köln and arrives on Tuesday.",` +
	`"image":"https://img.example.com/p/48213377.jpg","data":{"order":"17-48213377","screen":"tracking"},"sound":"default","badge":1,` +
	`"category":"ORDER","thread_id":"orders","collapse_key":"order-17","expires_at":"2026-11-21T10:00:00Z"}`

func BenchmarkMessage(b *testing.B) {
	value := []byte(typicalRecord)
	var m push.Message
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if d := Message(value, &m); d != nil {
			b.Fatal(d)
		}
	}
}

// BenchmarkStandard is the comparison: encoding/json into the same fields,
// without the checks of the contract.
func BenchmarkStandard(b *testing.B) {
	value := []byte(typicalRecord)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		var m struct {
			ID, App, Type, Priority, Title, Body, Image, Sound, Category string

			UserID      string            `json:"user_id"`
			SenderID    string            `json:"sender_id"`
			ThreadID    string            `json:"thread_id"`
			CollapseKey string            `json:"collapse_key"`
			Badge       int               `json:"badge"`
			Data        map[string]string `json:"data"`
			ExpiresAt   time.Time         `json:"expires_at"`
		}
		if err := json.Unmarshal(value, &m); err != nil {
			b.Fatal(err)
		}
	}
}
