//go:build unix

package fleet

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pushfleet/pushfleet/providers/sim"
)

// Keys are the keys of an app as its files have them. The first have no Key-Id: the
// configuration names them.
func (f *Fleet) Keys(app string) *sim.Credentials { return f.keys[app] }

// ReplaceKeys puts other keys of an app into its files, each renamed over the former
// one, as operators are to. Whether the providers take them is the caller's business.
// One call at a time.
func (f *Fleet) ReplaceKeys(c *sim.Credentials) error {
	account, err := c.ServiceAccount(f.Sim.TokenURI())
	if err != nil {
		return err
	}
	if err := f.replaceFiles(c.Name, append([]byte("Key-Id: "+c.KeyID+"\n"), c.P8...), account); err != nil {
		return err
	}
	f.keys[c.Name] = c
	return nil
}

// BreakKeys puts what is no key into an app's files. A worker that starts then does
// not start.
func (f *Fleet) BreakKeys(app string) error {
	return f.replaceFiles(app, []byte("Key-Id: "+f.keys[app].KeyID+"\n-----BEGIN PRIVATE KEY-----\n"), []byte(`{"type": `))
}

func (f *Fleet) replaceFiles(app string, key, account []byte) error {
	for name, content := range map[string][]byte{keyFile(app): key, accountFile(app): account} {
		to := filepath.Join(f.options.Dir, name)
		if err := os.WriteFile(to+".next", content, 0o600); err != nil {
			return fmt.Errorf("replacing keys: %w", err)
		}
		if err := os.Rename(to+".next", to); err != nil {
			return fmt.Errorf("replacing keys: %w", err)
		}
	}
	return nil
}

func keyFile(app string) string     { return app + "-key.p8" }
func accountFile(app string) string { return app + "-account.json" }
