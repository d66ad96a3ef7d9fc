package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Bounds of a batch.
const (
	MaxBatch      = 1000    // messages, or whatever else its lines are
	maxBatchBytes = 4 << 20 // as gateways have it by default
)

// outcome is what became of one line of a batch: one of the two, or none so far.
type outcome[T any] struct {
	done *T
	err  error // a *Problem, or a *GivenUpError
}

// UnmarshalJSON reads what the answer to a batch says of a line.
func (o *outcome[T]) UnmarshalJSON(text []byte) error {
	var refused struct {
		Problem *Problem `json:"problem"`
	}
	if err := json.Unmarshal(text, &refused); err != nil {
		return err
	}
	if refused.Problem != nil {
		o.err = refused.Problem
		return nil
	}
	o.done = new(T)
	return json.Unmarshal(text, o.done)
}

// linesOf are the lines of a batch of so many. what names these in errors.
func linesOf[T any](of []T, what string) ([][]byte, error) {
	if len(of) == 0 || len(of) > MaxBatch {
		return nil, fmt.Errorf("%d %s, want 1 to %d", len(of), what, MaxBatch)
	}
	lines, size := make([][]byte, len(of)), 0
	for i := range of {
		var err error
		if lines[i], err = json.Marshal(&of[i]); err != nil {
			return nil, fmt.Errorf("number %d of %d %s: %w", i, len(of), what, err)
		}
		size += len(lines[i]) + 1
	}
	if size > maxBatchBytes {
		return nil, fmt.Errorf("a batch of %d bytes, want at most %d", size, maxBatchBytes)
	}
	return lines, nil
}

// sendBatch sends lines in one request, and again those that were not taken for now, until
// each is done or refused, or ctx ends. ids are those of the notifications that some lines
// are. Outcomes are in the order of the lines; the error says why nothing at all was done, and
// then there are none.
func sendBatch[T any](ctx context.Context, c *Client, a asking, lines [][]byte, ids func(open []int) []string, good ...int) ([]outcome[T], error) {
	outcomes, open := make([]outcome[T], len(lines)), make([]int, len(lines))
	for i := range lines {
		open[i] = i
	}
	err := c.repeat(ctx, func() []string { return ids(open) }, func() (err error) {
		open, err = sendLines(ctx, c, a, lines, open, outcomes, good...)
		return err
	})
	if len(open) == len(lines) && err != nil && !givenUp(err) {
		return nil, err
	}
	for _, i := range open {
		outcomes[i].err = err
	}
	return outcomes, nil
}

func givenUp(err error) bool {
	var g *GivenUpError
	return errors.As(err, &g)
}

// sendLines sends the open lines once, as the body of what is asked, and notes the outcomes
// that are final. It returns the lines that are still open, and why.
func sendLines[T any](ctx context.Context, c *Client, a asking, lines [][]byte, open []int, outcomes []outcome[T], good ...int) (still []int, err error) {
	var body bytes.Buffer
	for _, i := range open {
		body.Write(lines[i])
		body.WriteByte('\n')
	}
	a.body, a.contentType = body.Bytes(), "application/x-ndjson"
	var answer struct {
		Results []outcome[T] `json:"results"`
	}
	if err := c.once(ctx, &a, &answer, good...); err != nil {
		return open, err
	}
	if len(answer.Results) != len(open) {
		return open, fmt.Errorf("%d results of %d lines", len(answer.Results), len(open))
	}
	for k, i := range open {
		refused, is := answer.Results[k].err.(*Problem)
		if !is || !refused.again() {
			outcomes[i] = answer.Results[k]
			continue
		}
		still = append(still, i)
		if p, is := err.(*Problem); !is || refused.RetryAfter > p.RetryAfter {
			err = refused
		}
	}
	return still, err
}
