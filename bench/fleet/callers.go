//go:build unix

package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/pushfleet/pushfleet/configs"
)

// Caller is who may call a gateway by a key.
type Caller struct {
	Key    string
	Sender string
	Apps   []string
	Rights []string
}

// The files of gateways, and a secret that is good on this machine and for the time of a run
// alone.
const (
	keysFile       = "keys.json"
	receiptsFile   = "receipts.key"
	receiptsSecret = "receipts-receipts-receipts-receipts-\n"
)

// WriteCallers writes the files of gateways into dir: who may call, and what signs receipts.
func WriteCallers(dir string, callers ...Caller) error {
	type entry struct {
		Name   string   `json:"name"`
		SHA256 string   `json:"sha256"`
		Sender string   `json:"sender"`
		Apps   []string `json:"apps"`
		Rights []string `json:"rights"`
	}
	var keys struct {
		Keys []entry `json:"keys"`
	}
	for _, a := range callers {
		hash := sha256.Sum256([]byte(a.Key))
		keys.Keys = append(keys.Keys, entry{a.Sender, hex.EncodeToString(hash[:]), a.Sender, a.Apps, a.Rights})
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return fmt.Errorf("writing the file of keys: %w", err)
	}
	return writeFiles(dir, map[string][]byte{keysFile: text, receiptsFile: []byte(receiptsSecret)})
}

// UseCallers has gateways know those of WriteCallers, and listen at any free port.
func UseCallers(c *configs.Config, dir string) {
	g := &c.Gateway
	g.Listen, g.AdminListen, g.Fanout.AdminListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	g.KeysFile, g.ReceiptsFile = filepath.Join(dir, keysFile), filepath.Join(dir, receiptsFile)
}

// Ask makes one request of a gateway and reads its answer, whatever its status is. An error
// says that there was none, or not all of it.
func (a *Caller) Ask(ctx context.Context, client *http.Client, method, url string, body []byte, headers ...string) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.Key)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	answer, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		return 0, nil, err
	}
	return answer.StatusCode, text, nil
}
