package configs

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// EnvPrefix starts the name of every variable that overrides a setting; the
// key's path in upper case follows: PUSHFLEET_KAFKA_BROKERS.
const EnvPrefix = "PUSHFLEET_"

// orchestrated are the variables that Kubernetes sets for a service named
// pushfleet-redis or the like. They are not ours.
var orchestrated = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// environment applies our variables to c. A list is separated by commas.
// Settings inside lists of sections, and maps, have no variable. A variable
// that starts like a section but names no key of it is refused: it is misspelt.
// All other variables are ignored.
func (r *reader) environment(c *Config, env []string) {
	settings := map[string]setting{}
	var sections []string
	root := reflect.ValueOf(c).Elem()
	for i := range root.NumField() {
		sections = append(sections, variable(root.Type().Field(i).Tag.Get("yaml"))+"_")
	}
	walkSettings(root, "", func(path string, v reflect.Value) {
		settings[variable(path)] = setting{path, v}
	})
	env = slices.Sorted(slices.Values(env))
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		s, ok := settings[name]
		switch {
		case ok:
			r.variables[s.path] = name
			if err := s.set(value); err != nil {
				r.problems = append(r.problems, Problem{Path: s.path, Variable: name, Message: err.Error()})
			}
		case slices.ContainsFunc(sections, func(s string) bool { return strings.HasPrefix(name, s) }) && !orchestrated.MatchString(name):
			r.problems = append(r.problems, Problem{Variable: name, Message: "is not a setting that a variable can override"})
		}
	}
}

// setting is one place of a Config that a variable can override.
type setting struct {
	path  string
	value reflect.Value
}

func (s setting) set(text string) error {
	if s.value.Kind() != reflect.Slice {
		return setText(s.value, text)
	}
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	s.value.Set(reflect.ValueOf(list))
	return nil
}

// variable is the environment variable of a path.
func variable(path string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// walkSettings calls f for every single value and list of strings outside of
// lists of sections, in the order of the file.
func walkSettings(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	for i := range v.NumField() {
		field, at := v.Field(i), join(path, v.Type().Field(i).Tag.Get("yaml"))
		switch {
		case field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[time.Time]():
			walkSettings(field, at, f)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() != reflect.String:
		case field.Kind() == reflect.Map:
		default:
			f(at, field)
		}
	}
}
