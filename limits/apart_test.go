package limits

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// twin is another name with the same hash.
func twin(name string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("app", i); shortHash(other) == shortHash(name) && other != name {
			return other
		}
	}
}

// A rule that would count what it is not about is refused, and only that one.
func TestRulesTellNamesApart(t *testing.T) {
	other := twin("shop")
	apps := []string{"shop", "bank", other}
	for _, c := range []struct {
		why  string
		rule Rule
		want string
	}{
		{"it names no app", Rule{}, ""},
		{"it names others", Rule{Apps: []string{"bank"}}, ""},
		{"it names one of the two", Rule{Apps: []string{"bank", "shop"}}, "app shop has the hash of app " + other},
		{"it names both", Rule{Apps: []string{"shop", other}}, ""},
		{"a count of its own for each of the two", Rule{Apps: []string{"shop", other}, PerApp: true}, "apps shop and " + other},
		{"a count of its own for each app", Rule{PerApp: true}, "apps shop and " + other},
		{"for each of some", Rule{Apps: []string{"bank"}, PerApp: true}, ""},
		{"an app named twice", Rule{Apps: []string{"bank", "bank"}, PerApp: true}, ""},
		{"one of two lanes", Rule{Lanes: []string{other}}, "lane " + other + " has the hash of lane shop"},
	} {
		r := c.rule
		r.Name, r.Per, r.Max, r.Window = "x", PerUser, 1, time.Hour
		_, err := New(nil, []Rule{r}, WriteVersion2(), Among(apps, apps))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.why, err, c.want)
		}
	}
}
