package payload

import (
	"encoding/json"
	"fmt"
)

// Object is a JSON object whose values are left as they are: what reads a
// vendor's message takes out of it what our message has a field for. Its methods
// are not for the way of a notification; they allocate.
type Object map[string]json.RawMessage

// Take removes a member that is a string and not empty, and returns it; "" when
// there is none.
func (o Object) Take(key string) string {
	var s string
	if json.Unmarshal(o[key], &s) != nil || s == "" {
		return ""
	}
	delete(o, key)
	return s
}

// Inner returns a member that is an object, or nil.
func (o Object) Inner(key string) Object {
	var inner Object
	if json.Unmarshal(o[key], &inner) != nil {
		return nil
	}
	return inner
}

// Put sets a member to what is left of an object, or removes it.
func (o Object) Put(key string, left Object) error {
	if len(left) == 0 {
		delete(o, key)
		return nil
	}
	raw, err := json.Marshal(left)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", key, err)
	}
	o[key] = raw
	return nil
}
