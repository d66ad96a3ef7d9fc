package subscriptions

import (
	"errors"
	"strings"
)

// What a store may answer. Errors wrap them.
var (
	ErrNoTopic     = errors.New("there is no such topic")
	ErrConflict    = errors.New("there is a topic of that name with other settings")
	ErrTopicClosed = errors.New("the topic is closed")
	ErrTooMany     = errors.New("the user has subscribed to as many topics as one may")
)

// Fault is one thing that is wrong with a topic or a subscription.
type Fault struct {
	Field string // as in JSON, nested ones with a slash: "metadata/priority"
	Rule  string // what it breaks; it quotes nothing of the input
}

// InvalidError is input that breaks rules: all that it breaks.
type InvalidError struct{ Faults []Fault }

func (e *InvalidError) Error() string {
	var b strings.Builder
	for i, f := range e.Faults {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Field + ": " + f.Rule)
	}
	return b.String()
}

// add notes a fault.
func (e *InvalidError) add(field, rule string) { e.Faults = append(e.Faults, Fault{field, rule}) }

// orNil is the error if there is a fault.
func (e *InvalidError) orNil() error {
	if len(e.Faults) == 0 {
		return nil
	}
	return e
}
