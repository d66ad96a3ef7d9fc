// Package rightstest is a Kafka that allows each role what the table of rights says, for
// tests of programs: what they need is granted, and what is granted is needed.
package rightstest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/wiring"
)

// Password is that of every user.
const Password = "secret"

// Start starts a Kafka without topics in which each role is a user with its rights under
// this configuration, and the user admin may do everything. It ends with the test.
func Start(t *testing.T, c *configs.Config, more ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", Password), kfake.GroupMinSessionTimeout(100 * time.Millisecond)}
	for _, role := range wiring.Roles() {
		opts = append(opts, User(t, c, string(role), role))
	}
	cluster, err := kfake.NewCluster(append(opts, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// User is a user with the rights of these roles.
func User(t *testing.T, c *configs.Config, name string, roles ...wiring.Role) kfake.Opt {
	t.Helper()
	var acls []kfake.ACL
	for _, r := range wiring.Rights(c) {
		if !slices.Contains(roles, r.Role) {
			continue
		}
		for _, word := range r.Operations {
			operation, err := kmsg.ParseACLOperation(word)
			if err != nil {
				t.Fatal(err)
			}
			resource, err := kmsg.ParseACLResourceType(r.Resource)
			if err != nil {
				t.Fatal(err)
			}
			acls = append(acls, kfake.ACL{Resource: resource, Name: r.Name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true})
		}
	}
	return kfake.User("PLAIN", name, Password, acls...)
}

// As is a configuration of one user of Kafka.
func As(t *testing.T, c *configs.Config, user string) *configs.Config {
	t.Helper()
	own := *c
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(Password), 0o600); err != nil {
		t.Fatal(err)
	}
	own.Kafka.SASL = configs.SASL{Mechanism: "PLAIN", Username: user, PasswordFile: password, Insecure: true}
	return &own
}
