package s3

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Credentials sign requests. However they are printed, the secret key and the
// session token do not show.
type Credentials struct {
	accessKey, secretKey, sessionToken string
}

// String hides all but the access key, which is no secret.
func (c Credentials) String() string { return c.accessKey }

// GoString hides the same from %#v.
func (c Credentials) GoString() string { return c.String() }

// ParseCredentials reads the text of a credentials file in the form that Amazon's tools write:
// a line each of aws_access_key_id, aws_secret_access_key and, if
// they are temporary, aws_session_token. Of several profiles it takes [default], or the
// lines before the first one. An error does not repeat the text.
func ParseCredentials(text string) (Credentials, error) {
	var c Credentials
	fields := map[string]*string{"aws_access_key_id": &c.accessKey, "aws_secret_access_key": &c.secretKey, "aws_session_token": &c.sessionToken}
	lines, ours := bufio.NewScanner(strings.NewReader(text)), true
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case line[0] == '[':
			ours = line == "[default]"
			continue
		case !ours:
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found {
			return Credentials{}, fmt.Errorf("line %d: not of the form key = value", n)
		}
		if field := fields[strings.TrimSpace(key)]; field != nil {
			*field = strings.TrimSpace(value)
		}
	}
	if err := lines.Err(); err != nil {
		return Credentials{}, errors.New("a line is too long")
	}
	if c.accessKey == "" || c.secretKey == "" {
		return Credentials{}, errors.New("aws_access_key_id or aws_secret_access_key is missing")
	}
	return c, nil
}

// provider gives the library the credentials of each request.
type provider func() (Credentials, error)

// RetrieveWithCredContext implements credentials.Provider.
func (p provider) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	if p == nil {
		return credentials.Value{SignerType: credentials.SignatureAnonymous}, nil
	}
	c, err := p()
	if err != nil {
		return credentials.Value{}, fmt.Errorf("the credentials: %w", err)
	}
	return credentials.Value{AccessKeyID: c.accessKey, SecretAccessKey: c.secretKey, SessionToken: c.sessionToken, SignerType: credentials.SignatureV4}, nil
}

// Retrieve implements credentials.Provider.
func (p provider) Retrieve() (credentials.Value, error) { return p.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider: they are read anew each time.
func (provider) IsExpired() bool { return true }
