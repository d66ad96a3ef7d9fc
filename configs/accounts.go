package configs

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// Account is what Accounts has for a platform, by setting; nil = the app has
// none there.
func (a *App) Account(p push.Platform) (settings map[string]string) {
	for key, value := range a.Accounts {
		if name, setting, _ := strings.Cut(key, "."); name == p.String() {
			if settings == nil {
				settings = make(map[string]string)
			}
			settings[setting] = value
		}
	}
	return settings
}

// secretSetting is how the names of settings of an account end that are files
// with a secret.
const secretSetting = "_file"

// Secrets reads the files with secrets that an account names, by setting. The
// error names the setting.
func Secrets(account map[string]string) (map[string]Secret, error) {
	secrets := make(map[string]Secret)
	for setting, path := range account {
		if !strings.HasSuffix(setting, secretSetting) {
			continue
		}
		s, err := ReadSecret(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
		secrets[setting] = s
	}
	return secrets, nil
}

// accountProblem is what is wrong with a key of apps[].accounts; empty = nothing.
func accountProblem(key string) string {
	name, setting, _ := strings.Cut(key, ".")
	_, known := push.ParsePlatform(name)
	_, section := fieldNamed(reflect.ValueOf(App{}), name)
	switch {
	case section:
		return "must not be used here: " + name + " has a section of its own"
	case !known:
		return "must begin with the name of a platform and a dot"
	case setting == "":
		return "must name a setting after the platform, such as " + name + ".url"
	}
	return ""
}
