package configs

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Validate checks every value by itself and all of them together. The error is
// Problems, without lines. It opens no file: CheckFiles does.
func (c *Config) Validate() error { return c.check().orNil() }

func (c *Config) check() Problems {
	var ps Problems
	checkEach(&ps, reflect.ValueOf(c).Elem(), "")
	c.checkTogether(&ps)
	return ps
}

// checkEach walks over the fields and applies their check tags.
func checkEach(ps *Problems, v reflect.Value, path string) {
	for i := range v.NumField() {
		field, f := v.Type().Field(i), v.Field(i)
		at := join(path, field.Tag.Get("yaml"))
		rules := strings.Split(field.Tag.Get("check"), ",")
		if slices.Contains(rules, "required") && isEmpty(f) {
			ps.add(at, "must not be empty")
			continue
		}
		switch {
		case f.Kind() == reflect.Pointer && !f.IsNil():
			checkEach(ps, f.Elem(), at)
		case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]():
			checkEach(ps, f, at)
		case f.Kind() == reflect.Slice:
			for j := range f.Len() {
				element := at + "[" + strconv.Itoa(j) + "]"
				if f.Index(j).Kind() == reflect.Struct {
					checkEach(ps, f.Index(j), element)
					continue
				}
				checkOne(ps, f.Index(j), element, append(rules, "required"))
			}
		default:
			checkOne(ps, f, at, rules)
		}
	}
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	}
	return false
}

// checkOne adds the first problem of one value.
func checkOne(ps *Problems, v reflect.Value, path string, rules []string) {
	for _, rule := range rules {
		name, arg, _ := strings.Cut(rule, "=")
		message := ""
		switch name {
		case "", "required":
			if name == "required" && isEmpty(v) {
				message = "must not be empty"
			}
		case "min", "max":
			message = checkBound(v, name, arg)
		case "oneof":
			if words := strings.Split(arg, "|"); !slices.Contains(words, v.String()) {
				message = "must be one of " + strings.Join(quoteAll(words), ", ")
			}
		default:
			if v.Len() > 0 {
				message = checkGrammar(v.String(), name)
			}
		}
		if message != "" {
			ps.add(path, "%s", message)
			return
		}
	}
}

func quoteAll(words []string) []string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" {
			quoted[i] = `"" (none)`
		}
	}
	return quoted
}

// checkBound compares a number, a size or a duration with a bound of its own
// notation.
func checkBound(v reflect.Value, name, arg string) string {
	bound := reflect.New(v.Type()).Elem()
	if err := setText(bound, arg); err != nil {
		panic(fmt.Sprintf("configs: check tag %s=%s of a %s", name, arg, v.Type()))
	}
	var low, high bool
	if v.Kind() == reflect.Float64 {
		f := v.Float()
		low, high = f < bound.Float() || math.IsNaN(f), f > bound.Float()
	} else {
		low, high = v.Int() < bound.Int(), v.Int() > bound.Int()
	}
	switch {
	case name == "min" && low:
		return "must be at least " + arg
	case name == "max" && high:
		return "must be at most " + arg
	}
	return ""
}

var grammars = map[string]*regexp.Regexp{
	"name":     regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`),
	"topic":    regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`), // Kafka's 249 less the longest suffix
	"keyspace": regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`),
	"bundle":   regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,199}$`),
	"tenchars": regexp.MustCompile(`^[A-Z0-9]{10}$`),
	"project":  regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]{0,99}$`),
}

var grammarMessages = map[string]string{
	"name":     "must be 1 to 64 letters, digits, dots, underscores and dashes",
	"topic":    "must be a Kafka topic: 1 to 200 letters, digits, dots, underscores and dashes",
	"keyspace": "must be 1 to 48 lower-case letters, digits and underscores, starting with a letter",
	"bundle":   "must be a bundle id such as com.example.shop",
	"tenchars": "must be 10 capital letters and digits, as Apple displays it",
	"project":  "must be a Google project's id or number",
}

// checkGrammar returns what is wrong with a text, or nothing.
func checkGrammar(s, grammar string) string {
	switch grammar {
	case "hostport":
		return checkHostPort(s, 1)
	case "listen":
		return checkHostPort(s, 0) // port 0: any free one
	case "host":
		if !strings.Contains(s, ":") || net.ParseIP(s) != nil {
			s = net.JoinHostPort(s, "9042")
		}
		return checkHostPort(s, 1)
	case "url":
		return checkURL(s)
	case "collector":
		return checkCollector(s)
	case "zone":
		if _, err := push.LoadZone(s); err != nil {
			return "must be the IANA name of a time zone, such as Europe/Berlin"
		}
		return ""
	case "country":
		if s != AnyCountry && !push.CountryLike(s) {
			return "must be two capital letters (ISO 3166-1 alpha-2), or * for all others"
		}
		return ""
	case "clock":
		if _, ok := push.ParseClock(s); !ok {
			return "must be a time of day from 00:00 to 23:59"
		}
		return ""
	}
	if !grammars[grammar].MatchString(s) {
		return grammarMessages[grammar]
	}
	return ""
}

func checkHostPort(s string, lowest int) string {
	host, port, err := net.SplitHostPort(s)
	n, numErr := strconv.Atoi(port)
	switch {
	case err != nil, numErr != nil, n < lowest, n > math.MaxUint16, strings.ContainsAny(host, "/@ "):
		return "must be a host and a port, such as 10.0.0.1:9092"
	case host == "" && lowest > 0:
		return "must have a host before the port"
	}
	return ""
}

func checkCollector(s string) string {
	u, err := url.Parse(s)
	if s != "" && (err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return "must be an http or https URL such as http://127.0.0.1:4318/v1/traces, without a user"
	}
	return ""
}

func checkURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil, u.Host == "", u.Hostname() == "":
		return "must be a URL such as https://api.push.apple.com"
	case u.Scheme != "https":
		return "must be an https URL: Apple, Google and the simulator use TLS only"
	case u.User != nil, u.RawQuery != "", u.Fragment != "", u.Path != "" && u.Path != "/":
		return "must have only a scheme, a host and a port"
	}
	return ""
}
