package configs

import (
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
)

// plaintext is a password that goes over the network unencrypted.
type plaintext struct {
	section  string // the section with password_file and insecure
	tls      string // the section that would encrypt it
	accepted bool
}

// plaintexts are all of them. Addresses of this machine are no exception:
// servers name other servers, and clients connect to those.
func (c *Config) plaintexts() (found []plaintext) {
	if s := &c.Kafka.SASL; s.Mechanism == "PLAIN" && s.PasswordFile != "" && !c.Kafka.TLS.Enabled {
		found = append(found, plaintext{"kafka.sasl", "kafka.tls", s.Insecure})
	}
	if r := &c.Redis; r.PasswordFile != "" && !r.TLS.Enabled {
		found = append(found, plaintext{"redis", "redis.tls", r.Insecure})
	}
	if s := &c.Cassandra; s.PasswordFile != "" && !s.TLS.Enabled {
		found = append(found, plaintext{"cassandra", "cassandra.tls", s.Insecure})
	}
	return found
}

// checkPlaintexts: a password needs TLS, unless the section says insecure.
func (c *Config) checkPlaintexts(ps *Problems) {
	for _, p := range c.plaintexts() {
		if !p.accepted {
			ps.add(p.section+".password_file", "goes over the network in plaintext: set %s.enabled, or %s.insecure to true if nobody can listen", p.tls, p.section)
		}
	}
}

// Insecure lists what goes over the network in plaintext because the
// configuration allows it. A program that runs with such a configuration keeps
// saying so.
func (c *Config) Insecure() (notes []Note) {
	for _, p := range c.plaintexts() {
		if p.accepted {
			notes = append(notes, Note{p.section + ".insecure", "the password goes over the network in plaintext"})
		}
	}
	for i, a := range c.Apps {
		if a.FCM != nil && a.FCM.Insecure {
			notes = append(notes, Note{"apps[" + strconv.Itoa(i) + "].fcm.insecure", "access tokens may be fetched in plaintext"})
		}
	}
	if c.Gateway.Insecure && (c.Gateway.exposed(c.Gateway.Listen) || c.Gateway.exposed(c.Gateway.Dashboard.Listen)) {
		notes = append(notes, Note{"gateway.insecure", "callers' keys and messages go over the network in plaintext"})
	}
	return notes
}

// checkTokenURI: where access tokens are fetched, which stands in the service
// account's file, is reached over TLS or is this machine. If the file is not
// JSON, the provider refuses it.
func (f *FCM) checkTokenURI(account Secret) (problem string) {
	var file struct {
		TokenURI string `json:"token_uri"`
	}
	if f.Insecure || json.Unmarshal([]byte(account.Reveal()), &file) != nil {
		return ""
	}
	if u, err := url.Parse(file.TokenURI); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return "its token_uri is http and not on this machine, so access tokens would go over the network in plaintext; use https, or set insecure to true if nobody can listen"
	}
	return ""
}

// CheckTokenURI is that of a service account which takes the place of the one at the
// start.
func (f *FCM) CheckTokenURI(account Secret) error {
	if problem := f.checkTokenURI(account); problem != "" {
		return errors.New(problem)
	}
	return nil
}
