package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/forms"
)

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
	if fault := forms.CheckNames(body, names); fault != "" {
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
