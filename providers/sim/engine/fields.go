package engine

import (
	"strconv"
	"strings"
)

// fieldKind is what HTTP/2 thinks of a field's name (RFC 9113, 8.2 and 8.3).
// Tables know it of their entries, so that it is found once for each name and
// not once for each request.
type fieldKind uint8

const (
	fieldRegular fieldKind = iota
	fieldContentLength
	fieldTE
	fieldForbidden // no request may have it
	fieldMethod    // from here on the pseudo-header fields of requests
	fieldScheme
	fieldAuthority
	fieldPath
)

// fieldsNeeded are the pseudo-header fields that no request may miss.
const fieldsNeeded = 1<<fieldMethod | 1<<fieldScheme | 1<<fieldPath

func kindOf(name string) fieldKind {
	switch name {
	case ":method":
		return fieldMethod
	case ":scheme":
		return fieldScheme
	case ":authority":
		return fieldAuthority
	case ":path":
		return fieldPath
	case "content-length":
		return fieldContentLength
	case "te":
		return fieldTE
	case "", "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return fieldForbidden
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == ':' || c >= 'A' && c <= 'Z' || c >= 0x7f {
			return fieldForbidden
		}
	}
	return fieldRegular
}

// field takes a field of the request's header. What is wrong with it stands in
// s.fault afterwards.
func (s *stream) field(kind fieldKind, name, value string) {
	s.size += len(name) + len(value) + fieldOverhead
	if kind >= fieldMethod {
		s.pseudo(kind, name, value)
		return
	}
	switch kind {
	case fieldForbidden:
		s.fault = "forbidden field name"
	case fieldTE:
		if !strings.EqualFold(value, "trailers") {
			s.fault = "te is not trailers"
		}
	case fieldContentLength:
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || s.announced && s.length != n {
			s.fault = "content-length is no number, or two"
		}
		s.length, s.announced = n, true
	}
	s.req.Fields = append(s.req.Fields, Field{name, value})
}

func (s *stream) pseudo(kind fieldKind, name, value string) {
	bit := uint8(1) << kind
	switch {
	case s.pseudos&bit != 0:
		s.fault = name + " is repeated"
	case len(s.req.Fields) > 0:
		s.fault = name + " after other fields"
	case kind == fieldPath && value == "":
		s.fault = ":path is empty"
	}
	s.pseudos |= bit
	switch kind {
	case fieldMethod:
		s.req.Method = value
	case fieldPath:
		s.req.Path = value
	}
}

// headFault says what is wrong with a request's header; empty: nothing.
func (s *stream) headFault() string {
	if s.fault == "" && s.pseudos&fieldsNeeded != fieldsNeeded {
		return "one of :method, :scheme and :path is missing"
	}
	return s.fault
}

// trailerFault says the same of fields behind a body.
func (s *stream) trailerFault() string {
	if s.pseudos != 0 {
		return "a pseudo-header field in trailers"
	}
	return s.fault
}

// bodyFault says the same of the body, which is complete or goes on.
func (s *stream) bodyFault(complete bool) string {
	n := uint64(len(s.body))
	if s.announced && (n > s.length || complete && n < s.length) {
		return "the body is not as long as content-length"
	}
	return ""
}
