package sim

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
)

// Credentials are what an app's developer would get from Apple and Google: the
// sender's side of an App.
type Credentials struct {
	Name    string
	Topic   string // Apple's bundle id
	TeamID  string
	KeyID   string
	P8      []byte // signing key, PKCS #8 in PEM, as Apple hands it out
	Project string // of Firebase
	Account string // e-mail address of the service account

	key          *ecdsa.PrivateKey
	account      *rsa.PrivateKey
	accountKeyID string
}

// NewCredentials makes up an app with a bundle id, a team, keys and a Firebase
// project. It takes about a tenth of a second, for the RSA key.
func NewCredentials(name, topic string) (*Credentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the signing key of %s: %w", name, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the signing key of %s: %w", name, err)
	}
	account, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("making the account key of %s: %w", name, err)
	}
	project := name + "-" + strings.ToLower(rand.Text()[:5])
	return &Credentials{
		Name: name, Topic: topic, TeamID: rand.Text()[:10], KeyID: rand.Text()[:10],
		P8:      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		Project: project, Account: "pushfleet@" + project + ".iam.gserviceaccount.com",
		key: key, account: account, accountKeyID: strings.ToLower(rand.Text() + rand.Text()[:14]),
	}, nil
}

// App is the provider's side of the credentials, for Options.Apps.
func (c *Credentials) App() App {
	return App{
		Name: c.Name, Topics: []string{c.Topic}, TeamID: c.TeamID, KeyID: c.KeyID, Key: &c.key.PublicKey,
		Project: c.Project, Account: c.Account, AccountKey: &c.account.PublicKey,
	}
}

// ServiceAccount is the JSON file of the Firebase service account. tokenURI is
// Server.TokenURI.
func (c *Credentials) ServiceAccount(tokenURI string) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.account)
	if err != nil {
		return nil, fmt.Errorf("encoding the account key of %s: %w", c.Name, err)
	}
	file, err := json.MarshalIndent(map[string]string{
		"type":           "service_account",
		"project_id":     c.Project,
		"private_key_id": c.accountKeyID,
		"private_key":    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_email":   c.Account,
		"client_id":      "100000000000000000000",
		"auth_uri":       "https://accounts.google.com/o/oauth2/auth",
		"token_uri":      tokenURI,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the service account of %s: %w", c.Name, err)
	}
	return append(file, '\n'), nil
}

// Next are other keys of the same app, as when its owner makes new ones: another one
// at Apple, with an id of its own, and another one of the same service account. It
// takes about a tenth of a second. Server.Trust makes them known.
func (c *Credentials) Next() (*Credentials, error) {
	made, err := NewCredentials(c.Name, c.Topic)
	if err != nil {
		return nil, err
	}
	made.TeamID, made.Project, made.Account = c.TeamID, c.Project, c.Account
	return made, nil
}
