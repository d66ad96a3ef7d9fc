package configs

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// reader puts YAML nodes and environment variables into a Config, strictly,
// and notes where each value came from.
type reader struct {
	problems  Problems
	lines     map[string]int    // of each path that the file has
	variables map[string]string // of each path that the environment has
}

func (r *reader) refuse(path string, line int, format string, args ...any) {
	r.problems = append(r.problems, Problem{Path: path, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) root(doc *yaml.Node, c *Config) {
	if len(doc.Content) == 1 && !isNull(doc.Content[0]) {
		r.value(doc.Content[0], reflect.ValueOf(c).Elem(), "")
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// value reads n into v. A key without a value leaves a section as it is and
// empties a list; a setting needs one.
func (r *reader) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	r.lines[path] = n.Line
	switch {
	case v.Type() == reflect.TypeFor[time.Time](), v.Kind() != reflect.Struct && v.Kind() != reflect.Slice &&
		v.Kind() != reflect.Pointer && v.Kind() != reflect.Map:
		r.scalar(n, v, path)
	case v.Kind() == reflect.Struct:
		if !isNull(n) {
			r.section(n, v, path)
		}
	case v.Kind() == reflect.Pointer:
		if !isNull(n) {
			v.Set(reflect.New(v.Type().Elem()))
			fillElement(v)
			r.section(n, v.Elem(), path)
		}
	case v.Kind() == reflect.Map:
		r.words(n, v, path)
	default:
		r.list(n, v, path)
	}
}

// section reads a mapping into a struct. Every key must be known and be there
// once.
func (r *reader) section(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		r.refuse(path, n.Line, "wants a section with keys, not %s", kindName(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := join(path, key.Value)
		field, ok := fieldNamed(v, key.Value)
		switch {
		case !ok:
			r.refuse(at, key.Line, "unknown key")
		case seen[key.Value]:
			r.refuse(at, key.Line, "is set twice")
		default:
			r.value(n.Content[i+1], field, at)
		}
		seen[key.Value] = true
	}
}

func (r *reader) list(n *yaml.Node, v reflect.Value, path string) {
	if isNull(n) {
		v.SetZero()
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.refuse(path, n.Line, "wants a list, not %s", kindName(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, element := range n.Content {
		fillElement(list.Index(i).Addr())
		r.value(element, list.Index(i), path+"["+strconv.Itoa(i)+"]")
	}
	if list.Len() == 0 {
		list = reflect.Zero(v.Type())
	}
	v.Set(list)
}

// words reads a mapping from names to strings; whole numbers pass as such.
func (r *reader) words(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		r.refuse(path, n.Line, "wants a section with keys, not %s", kindName(n))
		return
	}
	words := make(map[string]string, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, word := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		r.lines[at] = word.Line
		_, twice := words[key.Value]
		switch {
		case twice:
			r.refuse(at, key.Line, "is set twice")
		case word.Kind != yaml.ScalarNode || word.Tag != "!!str" && word.Tag != "!!int":
			r.refuse(at, word.Line, "wants a string or a number")
		}
		words[key.Value] = word.Value
	}
	if len(words) == 0 {
		v.SetZero()
		return
	}
	v.Set(reflect.ValueOf(words))
}

// scalar reads a single value, which must have exactly the wanted type.
func (r *reader) scalar(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		r.refuse(path, n.Line, "%v, not %s", wants(v), kindName(n))
		return
	}
	ok := false
	switch v.Interface().(type) {
	case time.Duration:
		ok = n.Tag == "!!str" // a bare number has no unit
	case time.Time:
		ok = n.Tag == "!!str" || n.Tag == "!!timestamp"
	case Bytes:
		ok = n.Tag == "!!str" || n.Tag == "!!int"
	case string:
		ok = n.Tag == "!!str"
	case bool:
		ok = n.Tag == "!!bool"
	case int, int64:
		ok = n.Tag == "!!int"
	case float64:
		ok = n.Tag == "!!int" || n.Tag == "!!float"
	}
	if !ok {
		r.refuse(path, n.Line, "%v, not %s", wants(v), kindName(n))
		return
	}
	if err := setText(v, n.Value); err != nil {
		r.refuse(path, n.Line, "%v", err)
	}
}

// setText parses text into the scalar v. The error says what is wanted and not
// what was there.
func setText(v reflect.Value, text string) error {
	var (
		value any
		err   error
	)
	switch v.Interface().(type) {
	case time.Duration:
		value, err = time.ParseDuration(text)
	case time.Time:
		value, err = time.Parse(time.RFC3339, text)
	case Bytes:
		value, err = parseBytes(text)
	case string:
		value = text
	case bool:
		if value = text == "true"; text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
	case int:
		value, err = strconv.Atoi(strings.ReplaceAll(text, "_", ""))
	case int64:
		value, err = strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	case float64:
		value, err = strconv.ParseFloat(text, 64)
	default:
		return fmt.Errorf("type %s cannot be configured", v.Type())
	}
	if err != nil {
		return wants(v)
	}
	v.Set(reflect.ValueOf(value))
	return nil
}

func wants(v reflect.Value) error {
	switch v.Interface().(type) {
	case time.Duration:
		return errors.New("wants a duration with its unit, such as 20ms, 10s or 720h")
	case time.Time:
		return errors.New("wants a time such as 2026-11-21T10:00:00Z")
	case Bytes:
		return errBytes
	case bool:
		return errors.New("wants true or false")
	case int, int64:
		return errors.New("wants a whole number")
	case float64:
		return errors.New("wants a number")
	}
	return errors.New("wants a string (in quotes, if it looks like something else)")
}

func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a section"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return map[string]string{"!!str": "a string", "!!int": "a whole number", "!!float": "a number",
		"!!bool": "true or false", "!!timestamp": "a time"}[n.Tag]
}

// fieldNamed is the field of the struct v that a key of the file means.
func fieldNamed(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// fillElement gives a new element of a list, or a new optional section, its
// defaults.
func fillElement(pointer reflect.Value) {
	switch p := pointer.Interface().(type) {
	case *Lane:
		*p = p.defaults()
	case *Layout:
		*p = p.defaults()
	case *Rule:
		*p = p.defaults()
	case *SenderRule:
		*p = p.defaults()
	case *APNS:
		*p = p.defaults()
	case *FCM:
		*p = p.defaults()
	}
}
