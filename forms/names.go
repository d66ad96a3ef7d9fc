package forms

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxDepth is how deep objects and lists may be in each other: more than any form is.
const maxDepth = 8

// CheckNames looks at what encoding/json does not: that a text is one object with nothing behind it,
// and that each name in it, on whatever level, is one of names as it is written there, and stands
// once in its object. The fault quotes no other name; "" = there is none.
func CheckNames(text []byte, names []string) (fault string) {
	type object struct {
		seen  []string // nil = a list
		value bool     // a name was read, and its value comes
	}
	var open []object
	dec := json.NewDecoder(bytes.NewReader(text))
	for first := true; ; first = false {
		token, err := dec.Token()
		if err == io.EOF && len(open) == 0 && !first {
			return ""
		}
		if err != nil || first && token != json.Delim('{') || !first && len(open) == 0 {
			return "want one JSON object, of " + strings.Join(names, ", ")
		}
		delim, is := token.(json.Delim)
		if is && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
			continue
		}
		if len(open) > 0 {
			in := &open[len(open)-1]
			if in.seen != nil && !in.value {
				name, _ := token.(string)
				if !slices.Contains(names, name) {
					return "a member that is not known; there are " + strings.Join(names, ", ")
				}
				if slices.Contains(in.seen, name) {
					return fmt.Sprintf("the member %s is there twice", name)
				}
				in.seen, in.value = append(in.seen, name), true
				continue
			}
			in.value = false
		}
		if !is {
			continue
		}
		if len(open) == maxDepth {
			return "objects or lists are too deep in each other"
		}
		o := object{}
		if delim == '{' {
			o.seen = []string{}
		}
		open = append(open, o)
	}
}
