package push

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// PanicError is a panic as an error. It never holds the value that was passed
// to panic, because that may be made of a message's text.
type PanicError struct {
	Stage string
	What  string // the runtime's words (index out of range …), or the value's type
	Stack []byte // frames, without values
}

func (e *PanicError) Error() string { return fmt.Sprintf("stage %s panicked: %s", e.Stage, e.What) }

// Recovered is what a deferred call of recover returned as a *PanicError of this
// stage, or nil.
func Recovered(stage string, v any) *PanicError {
	if v == nil {
		return nil
	}
	return &PanicError{Stage: stage, What: harmless(v), Stack: debug.Stack()}
}

// harmless describes the value that was passed to panic. It shows its content
// only if the runtime made it.
func harmless(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("value of type %T", v)
}
