package configs

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// walk calls f for every key of a YAML text, with the mapping it stands in.
func walk(t *testing.T, text string, f func(path string, parent *yaml.Node, i int)) {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	walkNode(doc.Content[0], "", f)
}

func walkNode(n *yaml.Node, path string, f func(path string, parent *yaml.Node, i int)) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := join(path, n.Content[i].Value)
			f(at, n, i)
			if i+1 >= len(n.Content) {
				break // f removed the last one
			}
			walkNode(n.Content[i+1], at, f)
		}
	case yaml.SequenceNode:
		for i, element := range n.Content {
			walkNode(element, path+"["+strconv.Itoa(i)+"]", f)
		}
	}
}

// bySection cuts a text into one for each key at its top: what the others say
// is the default then, and a case needs to read a tenth.
func bySection(t *testing.T, text string) map[string]string {
	t.Helper()
	sections := map[string]string{}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(doc.Content[0].Content); i += 2 {
		pair := doc.Content[0].Content[i : i+2]
		out, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: pair})
		if err != nil {
			t.Fatal(err)
		}
		sections[pair[0].Value] = string(out)
	}
	return sections
}

// changed is the section of path with the value there replaced, or removed if
// nil.
func changed(t *testing.T, sections map[string]string, path string, value *yaml.Node) string {
	t.Helper()
	var doc yaml.Node
	top, _, _ := strings.Cut(path, ".")
	text := sections[indexes.ReplaceAllString(top, "")]
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	found := false
	walkNode(doc.Content[0], "", func(at string, parent *yaml.Node, i int) {
		if at != path || found {
			return
		}
		found = true
		if value == nil {
			parent.Content = slices.Delete(parent.Content, i, i+2)
			return
		}
		parent.Content[i+1] = value
	})
	if !found {
		t.Fatalf("no key %s", path)
	}
	out, err := yaml.Marshal(&doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// plain is a scalar as it would be written without quotes.
func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// quoted is a string.
func quoted(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: s}
}

// fieldAt is the field of Config that a path means.
func fieldAt(t *testing.T, path string) reflect.StructField {
	t.Helper()
	typ, field := reflect.TypeFor[Config](), reflect.StructField{}
	for _, name := range strings.Split(indexes.ReplaceAllString(path, ""), ".") {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		found := false
		for i := range typ.NumField() {
			if typ.Field(i).Tag.Get("yaml") == name {
				field, found = typ.Field(i), true
			}
		}
		if !found {
			t.Fatalf("Config has no %s", path)
		}
		typ = field.Type
	}
	return field
}

// wrongValues are values that a field must refuse, each with a reason.
func wrongValues(f reflect.StructField) map[string]*yaml.Node {
	wrong := map[string]*yaml.Node{}
	section := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{plain("nonsense"), plain("1")}}
	list := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{plain("1")}}
	zero := reflect.Zero(f.Type).Interface()
	switch zero.(type) {
	case time.Duration:
		wrong["a number without unit"], wrong["no duration"] = plain("10"), plain("10 parsecs")
	case time.Time:
		wrong["no time"], wrong["a number"] = plain("yesterday"), plain("7")
	case Bytes:
		wrong["no size"], wrong["a negative size"] = plain("8 bananas"), plain("-1MiB")
	case string:
		wrong["a number"], wrong["true"] = plain("5"), plain("true")
	case bool:
		wrong["a string"], wrong["yes"], wrong["a number"] = quoted("true"), plain("yes"), plain("1")
	case int, int64:
		wrong["a string"], wrong["a fraction"], wrong["more than 64 bits"] = quoted("10"), plain("1.5"), plain("99999999999999999999")
	case float64:
		wrong["a string"], wrong["not a number"] = quoted("0.1"), plain(".nan")
	}
	switch f.Type.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		wrong["a word"] = plain("word")
		if f.Type.Kind() == reflect.Slice {
			wrong["a section"] = section
		} else {
			wrong["a list"] = list
		}
	case reflect.Struct:
		if f.Type != reflect.TypeFor[time.Time]() {
			wrong["a word"], wrong["a list"] = plain("word"), list
		}
	default:
		wrong["a section"], wrong["a list"], wrong["nothing"] = section, list, plain("")
		for _, rule := range strings.Split(f.Tag.Get("check"), ",") {
			addBroken(wrong, f.Type, rule)
		}
	}
	return wrong
}

// addBroken adds a value that breaks one rule of a check tag.
func addBroken(wrong map[string]*yaml.Node, t reflect.Type, rule string) {
	name, arg, _ := strings.Cut(rule, "=")
	switch name {
	case "":
	case "required":
		wrong["empty"] = quoted("")
	case "min", "max":
		step := 1
		if name == "min" {
			step = -1
		}
		switch {
		case t == reflect.TypeFor[time.Duration]():
			d, _ := time.ParseDuration(arg)
			wrong["beyond "+rule] = plain((d + time.Duration(step)).String())
		case t == reflect.TypeFor[Bytes]():
			b, _ := parseBytes(arg)
			wrong["beyond "+rule] = plain(strconv.Itoa(int(b) + step))
		case t.Kind() == reflect.Float64:
			f, _ := strconv.ParseFloat(arg, 64)
			beyond := f + 0.5*float64(step)*max(f, 0.1)
			wrong["beyond "+rule] = plain(strconv.FormatFloat(beyond, 'f', -1, 64))
		default:
			n, _ := strconv.Atoi(arg)
			wrong["beyond "+rule] = plain(strconv.Itoa(n + step))
		}
	case "url":
		for _, u := range []string{"http://127.0.0.1:1", "api.push.apple.com", "https://u:p@h", "https://h/path", "https://", "https://h?x=1"} {
			wrong["URL "+u] = quoted(u)
		}
	default: // oneof and grammars
		wrong["against "+name] = quoted("no / such: word")
	}
}

// One case for each field and each way to be wrong: the path of the key is
// named, and so is a line.
func TestEveryFieldRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	text := everything(t)
	sections := bySection(t, text)
	cases := 0
	walk(t, text, func(path string, _ *yaml.Node, _ int) {
		if strings.HasPrefix(path, "cassandra.replication.") {
			return
		}
		for reason, value := range wrongValues(fieldAt(t, path)) {
			cases++
			t.Run(path+"/"+reason, func(t *testing.T) {
				ps := problemsOf(t, changed(t, sections, path, value))
				i := slices.IndexFunc(ps, func(p Problem) bool { return p.Path == path })
				if i < 0 {
					t.Fatalf("got %v, want a problem of %s", ps, path)
				}
				if ps[i].Line == 0 || ps[i].Message == "" {
					t.Errorf("line %d, message %q", ps[i].Line, ps[i].Message)
				}
			})
		}
	})
	if cases < 400 {
		t.Errorf("only %d cases were generated", cases)
	}
}

func TestEverySectionRefusesUnknownKeys(t *testing.T) {
	t.Parallel()
	text := everything(t)
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	sections := map[string]*yaml.Node{"": doc.Content[0]}
	walkNode(doc.Content[0], "", func(path string, parent *yaml.Node, _ int) {
		sections[path[:max(0, strings.LastIndexByte(path, '.'))]] = parent
	})
	delete(sections, "cassandra.replication")
	for path, section := range sections {
		t.Run("in "+path, func(t *testing.T) {
			before := section.Content
			defer func() { section.Content = before }()
			for _, key := range []string{"nonsense", strings.ToUpper(before[0].Value), "<<"} {
				section.Content = append(slices.Clone(before), quoted(key), plain("1"))
				out, err := yaml.Marshal(&doc)
				if err != nil {
					t.Fatal(err)
				}
				ps := problemsOf(t, string(out))
				if len(ps) != 1 || ps[0].Path != join(path, key) || ps[0].Message != "unknown key" || ps[0].Line == 0 {
					t.Errorf("%s: got %v", key, ps)
				}
			}
			section.Content = append(slices.Clone(before), before[0], before[1])
			out, err := yaml.Marshal(&doc)
			if err != nil {
				t.Fatal(err)
			}
			if ps := problemsOf(t, string(out)); len(ps) != 1 || !strings.Contains(ps[0].Message, "twice") {
				t.Errorf("a key twice: got %v", ps)
			}
		})
	}
	if len(sections) < 20 {
		t.Errorf("only %d sections", len(sections))
	}
}

// A key that has no default must be there.
func TestMissingKeys(t *testing.T) {
	t.Parallel()
	sections := bySection(t, everything(t))
	for _, path := range []string{
		"lanes[0].name", "lanes[0].topic", "countries[0].country", "countries[0].hours[0].from", "countries[0].hours[0].to",
		"limits.rules[0].name", "limits.rules[0].max", "limits.rules[0].window", "apps[0].name",
		"apps[0].apns.topic", "apps[0].apns.team_id", "apps[0].apns.key_id", "apps[0].apns.key_file",
		"apps[0].fcm.project", "apps[0].fcm.service_account_file",
	} {
		ps := problemsOf(t, changed(t, sections, path, nil))
		if len(ps) != 1 || ps[0].Path != path {
			t.Errorf("without %s: got %v", path, ps)
		}
	}
	for _, path := range []string{"kafka", "lanes", "apps[0].fcm", "lanes[1].mode", "cassandra.layout[0].shards", "send.apns.streams"} {
		if ps := problemsOf(t, changed(t, sections, path, nil)); ps != nil {
			t.Errorf("without %s, which has a default: got %v", path, ps)
		}
	}
}

func allPathsOf(t *testing.T, text string) (paths []string) {
	walk(t, text, func(path string, _ *yaml.Node, _ int) { paths = append(paths, path) })
	return paths
}
