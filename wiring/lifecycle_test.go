package wiring

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// The example of docs/segments.md works as it stands there: New get 1 a day and 3 a
// week, Active 3 and 10, and what they got as New counts.
func TestTheExampleOfNewAndActive(t *testing.T) {
	doc, err := os.ReadFile("../docs/segments.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(doc)
	if example == nil {
		t.Fatal("docs/segments.md has no example")
	}
	c, err := configs.Parse(example[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Notes() {
		if strings.HasPrefix(n.Path, "limits") {
			t.Errorf("%s: %s", n.Path, n.Message)
		}
	}
	for _, r := range c.Limits.Rules {
		for _, s := range r.Segments {
			if !strings.Contains(string(doc), "pushctl segments build") || !strings.Contains(string(doc), " "+s+"=") {
				t.Errorf("nobody builds %s", s)
			}
		}
	}

	client := shardstest.Start(t)
	limiter, err := limits.New(client, Rules(c), LimitsOptions(c, nil)...)
	if err != nil {
		t.Fatal(err)
	}
	start, n := time.Now(), 0
	// sent offers 5 a day from a day on, and says how many of each day were sent.
	sent := func(user, segment, lane string, from, days int) (list []int) {
		for day := from; day < from+days; day++ {
			allowed := 0
			for i := range 5 {
				n++
				r := &limits.Request{Owner: user, ID: fmt.Sprint(n), Type: "promotion", Lane: lane, Channel: "push", Priority: 3,
					At: start.Add(time.Duration(day)*24*time.Hour + time.Duration(i)*time.Minute)}
				if segment != "" {
					r.Segments = []string{segment}
				}
				r.State, _ = client.Get(t.Context(), shards.LimiterKey(shards.UserShard(user), user)).Bytes() // none is nil
				if err := limiter.Decide(t.Context(), []*limits.Request{r}); err != nil {
					t.Fatal(err)
				}
				if r.Allowed {
					allowed++
				}
			}
			list = append(list, allowed)
		}
		return list
	}
	for _, tt := range []struct {
		why       string
		got, want []int
	}{
		{"New", sent("new", "lifecycle/new", "promotional", 0, 8), []int{1, 1, 1, 0, 0, 0, 0, 1}},
		{"Active", sent("active", "lifecycle/active", "promotional", 0, 8), []int{3, 3, 3, 1, 0, 0, 0, 3}},
		{"bought on the third day", append(sent("buyer", "lifecycle/new", "promotional", 0, 2), sent("buyer", "lifecycle/active", "promotional", 2, 5)...), []int{1, 1, 3, 3, 2, 0, 0}},
		{"neither", sent("other", "", "promotional", 0, 2), []int{5, 5}},
		{"no promotion", sent("new", "lifecycle/new", "transactional", 0, 2), []int{5, 5}},
	} {
		if fmt.Sprint(tt.got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", tt.why, tt.got, tt.want)
		}
	}
}
