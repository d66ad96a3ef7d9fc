package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep the objects and lists of a body may be in each other: more than
// any has that a route takes.
const maxDepth = 8

// readObject reads a body that is one JSON object, of at most so many bytes, into a
// struct. names are all that may stand before a colon in it, on whatever level. Nothing
// of the body is quoted in the problem but these.
func (g *Gateway) readObject(r *http.Request, most int, into any, names []string) *Problem {
	body, problem := g.readBody(r, "application/json", most, ofMany)
	if problem != nil {
		return problem
	}
	defer g.bodies.give(body)
	return parseObject(body.text, into, names)
}

func parseObject(body []byte, into any, names []string) *Problem {
	if !utf8.Valid(body) {
		return newProblem(codeBadRequest, "the body is not UTF-8")
	}
	if fault := checkNames(body, names); fault != "" {
		return newProblem(codeBadRequest, fault)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		p := newProblem(codeInvalidField, "a value of another type")
		return p.at("/" + strings.ReplaceAll(wrong.Field, ".", "/"))
	case err != nil: // also a known name in another's object
		return newProblem(codeBadRequest, "want one JSON object, of "+strings.Join(names, ", "))
	}
	return nil
}

// checkNames looks at what the decoder does not: that each name is written as it is
// known, and stands once in its object; and that nothing follows the object.
func checkNames(text []byte, names []string) (fault string) {
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
