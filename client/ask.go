package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// ask makes a request until it is answered for good, or ctx ends, and reads the answer into a
// T: each attempt into another one, so that none has anything of the one before. Errors begin
// with doing.
func ask[T any](ctx context.Context, c *Client, doing string, a *asking, statuses ...int) (*T, error) {
	if a.said != nil {
		var err error
		if a.body, err = json.Marshal(a.said); err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		a.contentType = "application/json"
	}
	var answer *T
	err := c.repeat(ctx, func() []string { return a.ids }, func() error {
		answer = new(T)
		return c.once(ctx, a, answer, statuses...)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return answer, nil
}

// at is a path: each {} of the pattern stands for one of the names, which is escaped.
func at(pattern string, names ...string) string {
	for _, name := range names {
		pattern = strings.Replace(pattern, "{}", segment(name), 1)
	}
	return pattern
}

// segment escapes a name for a path. A dot, or two, would be steps in it.
func segment(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// query is what stands behind a path. What is empty or 0 is left to the gateway.
func query(texts map[string]string, numbers map[string]int) string {
	values := url.Values{}
	for name, text := range texts {
		if text != "" {
			values.Set(name, text)
		}
	}
	for name, n := range numbers {
		if n != 0 {
			values.Set(name, strconv.Itoa(n))
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}
