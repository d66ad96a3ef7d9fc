package calls

import (
	"net/http"
	"strconv"
)

// Word is a provider's word as it may be kept: its first 64 bytes, if they are
// letters, digits and underscores and begin with a capital, which our own words
// never do. Otherwise it is empty: a server's text is not to be trusted.
func Word(s string) string {
	s = s[:min(len(s), 64)]
	for i := 0; i < len(s); i++ {
		b := s[i]
		capital := b >= 'A' && b <= 'Z'
		if !capital && (i == 0 || (b < '0' || b > '9') && (b < 'a' || b > 'z') && b != '_') {
			return ""
		}
	}
	return s
}

// StatusReason is the reason of an answer that has only a status: http_503.
func StatusReason(status int) string { return "http_" + strconv.Itoa(status) }

// StatusReasons are those of all statuses that HTTP knows.
func StatusReasons() []string {
	var all []string
	for status := 100; status < 600; status++ {
		if http.StatusText(status) != "" {
			all = append(all, StatusReason(status))
		}
	}
	return all
}
