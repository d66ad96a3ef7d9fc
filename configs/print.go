package configs

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Print writes a configuration, defaults and environment included, as a file
// that Load reads back to the same. It holds no secret: only the paths of
// files that do; and a Secret would show as "[secret]".
func Print(w io.Writer, c *Config) error {
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(node(reflect.ValueOf(*c))); err != nil {
		return fmt.Errorf("printing the configuration: %w", err)
	}
	return enc.Close()
}

// node turns a value of a Config into YAML.
func node(v reflect.Value) *yaml.Node {
	switch value := v.Interface().(type) {
	case time.Duration:
		return text(shortDuration(value))
	case time.Time:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!timestamp", Value: value.Format(time.RFC3339)}
	case Bytes:
		return text(value.String())
	case Secret:
		return text(hidden)
	case string:
		return text(value)
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatBool(value)}
	case int, int64, float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(value)}
	case map[string]string:
		return words(value)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return node(v.Elem())
	case reflect.Slice:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		if v.Len() == 0 {
			list.Style = yaml.FlowStyle
		}
		for i := range v.Len() {
			list.Content = append(list.Content, node(v.Index(i)))
		}
		return list
	}
	section := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Pointer && f.IsNil() || f.Type() == reflect.TypeFor[time.Time]() && f.IsZero() {
			continue
		}
		section.Content = append(section.Content, text(v.Type().Field(i).Tag.Get("yaml")), node(f))
	}
	return section
}

func words(m map[string]string) *yaml.Node {
	section := &yaml.Node{Kind: yaml.MappingNode}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		section.Content = append(section.Content, text(k), text(m[k]))
	}
	return section
}

// text is a string, in quotes where it would be read as something else.
func text(s string) *yaml.Node {
	var n yaml.Node
	n.SetString(s)
	return &n
}

// shortDuration writes 720h0m0s as 720h.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
