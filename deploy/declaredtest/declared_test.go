package declaredtest

import (
	"path/filepath"
	"slices"
	"testing"
)

// Metrics that are collected when they are asked for are declared by prometheus.NewDesc.
func TestDescriptions(t *testing.T) {
	metrics, _ := Read(t, filepath.Join("..", ".."))
	for name, labels := range map[string][]string{
		"push_gateway_sender_messages_total": {"sender", "result"},
		"push_gateway_sender_remaining":      {"sender", "policy"},
		"push_gateway_limits_gateways":       nil,
		"push_gateway_limits_alone":          nil,
	} {
		if m, ok := metrics.Find(name); !ok || !slices.Equal(m.Labels, labels) {
			t.Errorf("%s: %+v, %v", name, m, ok)
		}
	}
}
