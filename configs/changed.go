package configs

import "reflect"

// reloaded are the sections that a running worker reads again.
var reloaded = map[string]bool{"preferences": true, "countries": true, "limits": true}

// Changed returns the names of the sections in which other differs from c and which
// take effect only when the worker is started again, in the order of the file.
func (c *Config) Changed(other *Config) (sections []string) {
	a, b := reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem()
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("yaml")
		if !reloaded[name] && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			sections = append(sections, name)
		}
	}
	return sections
}
