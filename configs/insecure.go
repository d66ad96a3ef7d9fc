package configs

import (
	"encoding/json"
	"net/url"
	"strconv"
)

// plaintext is a password that goes over the network as it is.
type plaintext struct {
	section  string // that has password_file and insecure
	tls      string // the section that would hide it
	accepted bool
}

// plaintexts are all of them. An address of this machine makes no exception:
// servers name others, and clients go there.
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

// checkPlaintexts: a password goes over TLS, unless somebody has said that it
// need not.
func (c *Config) checkPlaintexts(ps *Problems) {
	for _, p := range c.plaintexts() {
		if !p.accepted {
			ps.add(p.section+".password_file", "goes over the network in plaintext: set %s.enabled, or %s.insecure to true if nobody can listen", p.tls, p.section)
		}
	}
}

// Insecure are the things that go over the network in plaintext because the
// configuration says that they may. Who starts with such a configuration says
// so for as long as it runs.
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
	return notes
}

// checkTokenURI: where access tokens are fetched, which stands in the service
// account's file, is reached over TLS or is this machine. What is no JSON is
// left to the provider to refuse.
func (f *FCM) checkTokenURI(account Secret) (problem string) {
	var file struct {
		TokenURI string `json:"token_uri"`
	}
	if f.Insecure || json.Unmarshal([]byte(account.Reveal()), &file) != nil {
		return ""
	}
	if u, err := url.Parse(file.TokenURI); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return "its token_uri is http and not on this machine: access tokens would go over the network in plaintext; use https, or set insecure to true if nobody can listen"
	}
	return ""
}
