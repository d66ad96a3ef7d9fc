package decode

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// The examples in docs/messages.md are valid, and its table has exactly the
// fields of the schema.
func TestMessagesDocShowsWhatWorks(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/messages.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	for _, example := range examples {
		if d := Message([]byte(example[1]), new(push.Message)); d != nil {
			t.Errorf("%v in\n%s", d, example[1])
		}
	}
	if len(examples) < 4 {
		t.Errorf("found %d examples", len(examples))
	}

	text, err := os.ReadFile("../../docs/message.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Properties map[string]json.RawMessage }
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "## Fields")
	table, _, _ = strings.Cut(table, "## Raw overrides")
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`[a-z_]+`,? )+)\\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("[a-z_]+").FindAllString(row[1], -1) {
			if _, ok := schema.Properties[name]; !ok {
				t.Errorf("the schema has no %s", name)
			}
			delete(schema.Properties, name)
		}
	}
	for name := range schema.Properties {
		t.Errorf("the table has no %s", name)
	}
}
