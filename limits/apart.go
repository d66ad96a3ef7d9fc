package limits

import (
	"fmt"
	"slices"
)

// Among names all apps and lanes that requests may have. States know 16 bits of a
// hash of each, so New refuses a rule that could not tell two of them apart: of a
// hundred apps a rule that names one meets another by mistake in 1 of 660 cases.
//
// Types are free names of 32 bits, and rules of types take two for one in 1 of 4
// billion cases.
func Among(apps, lanes []string) Option {
	return func(l *Limiter) { l.apps, l.lanes = apps, lanes }
}

// checkApart refuses a rule whose apps or lanes a state cannot tell from others.
func (r *Rule) checkApart(apps, lanes []string) error {
	if a, b, ok := confused(r.Apps, apps, shortHash); ok {
		return fmt.Errorf("limits: rule %s: app %s has the hash of app %s, which it would count too: name both, or give one another name", r.Name, a, b)
	}
	if a, b, ok := confused(r.Lanes, lanes, shortHash); ok {
		return fmt.Errorf("limits: rule %s: lane %s has the hash of lane %s, which it would count too: name both, or give one another name", r.Name, a, b)
	}
	if !r.PerApp {
		return nil
	}
	if len(r.Apps) > 0 {
		apps = r.Apps
	}
	if a, b, ok := alike(apps, shortHash); ok {
		return fmt.Errorf("limits: rule %s: apps %s and %s have the same hash and would share a count: give one another name, or name others", r.Name, a, b)
	}
	return nil
}

// confused finds a name of the list whose hash is that of another one that is not.
func confused[H comparable](list, all []string, hash func(string) H) (a, b string, ok bool) {
	for _, a := range list {
		for _, b := range all {
			if hash(a) == hash(b) && !slices.Contains(list, b) {
				return a, b, true
			}
		}
	}
	return "", "", false
}

// alike finds two names with the same hash.
func alike[H comparable](names []string, hash func(string) H) (a, b string, ok bool) {
	seen := make(map[H]string, len(names))
	for _, b := range names {
		if a, ok := seen[hash(b)]; ok && a != b {
			return a, b, true
		}
		seen[hash(b)] = b
	}
	return "", "", false
}
