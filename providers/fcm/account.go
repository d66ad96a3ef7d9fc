package fcm

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// account is what a service account's JSON file says.
type account struct {
	Type       string `json:"type"`
	ProjectID  string `json:"project_id"`
	KeyID      string `json:"private_key_id"`
	PrivateKey string `json:"private_key"`
	Email      string `json:"client_email"`
	TokenURI   string `json:"token_uri"`
}

// readAccount checks the file without repeating any of it in an error.
func readAccount(file []byte) (account, error) {
	var a account
	if err := json.Unmarshal(file, &a); err != nil {
		return a, errors.New("service account is not valid JSON")
	}
	if a.Type != "" && a.Type != "service_account" {
		return a, errors.New("type is not service_account")
	}
	if a.Email == "" || a.PrivateKey == "" {
		return a, errors.New("service account has no client_email or no private_key")
	}
	if a.TokenURI == "" {
		a.TokenURI = "https://oauth2.googleapis.com/token"
	}
	if u, err := url.Parse(a.TokenURI); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return a, errors.New("service account's token_uri is not a URL")
	}
	return a, nil
}

// longestName bounds what is told of an account's address, and longestKeyID of its key's id,
// in bytes.
const (
	longestName  = 192
	longestKeyID = 64
)

// name is the account's key and address, which are no secrets. A file may have something
// else in their places: what does not look like them is not told.
func (a *account) name() string {
	switch {
	case !within(a.Email, longestName, "@.-_+%:") || strings.Count(a.Email, "@") != 1:
		return "of an account whose name cannot be told"
	case !within(a.KeyID, longestKeyID, ""):
		return a.Email
	}
	return a.KeyID + " of " + a.Email
}

// within reports whether a text is of 1 to longest letters, digits and some other signs.
func within(s string, longest int, others string) bool {
	for i := 0; i < len(s); i++ {
		if b := s[i]; (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && strings.IndexByte(others, b) < 0 {
			return false
		}
	}
	return len(s) > 0 && len(s) <= longest
}

// checkProject keeps a project id safe in a path: letters, digits, "-", and
// ":" and "." of old domain-scoped ones.
func checkProject(id string) error {
	if id == "" || len(id) > 128 {
		return errors.New("no project id")
	}
	for i := 0; i < len(id); i++ {
		b := id[i]
		if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '-' && b != ':' && (b != '.' || i == 0) {
			return fmt.Errorf("byte 0x%02x in project id", b)
		}
	}
	return nil
}

// checkKey parses the key once at start, so that a wrong one is an error then
// and not a silent failure of every fetch.
func checkKey(text string) error {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return errors.New("service account's private_key is not PEM")
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if _, ok := key.(*rsa.PrivateKey); ok {
			return nil
		}
	} else if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return nil
	}
	return errors.New("service account's private_key is not an RSA key")
}
