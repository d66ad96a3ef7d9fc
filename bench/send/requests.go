//go:build linux

package send

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/pushfleet/pushfleet/providers/apns"
)

// body is the payload of every push of every client.
const body = `{"aps":{"alert":{"title":"Your order is on its way","body":"It will be with you between ten and twelve o'clock."},"sound":"default","thread-id":"orders"},"pf_id":"0199f3c2-7a54-7c3e-9d2b-1f0a5b6c7d8e"}`

// The headers besides topic, id and authorization.
const (
	pushType   = "alert"
	priority   = 10
	expiration = 4070908800 // 2099: ours sends nothing that has expired
	devicePath = "/3/device/"
)

// device is one recipient: the same list for every client.
type device struct {
	token string // 64 hexadecimal digits
	id    string // apns-id of its pushes
}

func devices(n int) []device {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]device, n)
	for i := range all {
		var token [32]byte
		for k := 0; k < len(token); k += 8 {
			binary.LittleEndian.PutUint64(token[k:], random.Uint64())
		}
		all[i] = device{hex.EncodeToString(token[:]), fmt.Sprintf("0199f3c2-7a54-8c3e-9d2b-%012x", i)}
	}
	return all
}

// tokens sign for the simulator's key, as the worker's do.
func (s *Spec) tokens() (*apns.TokenSource, error) {
	p8, err := os.ReadFile(s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the signing key: %w", err)
	}
	return apns.NewTokenSource(s.TeamID, s.KeyID, p8)
}

// authorization is the value of that header: a provider token as the worker
// signs them.
func (s *Spec) authorization() (string, error) {
	source, err := s.tokens()
	if err != nil {
		return "", err
	}
	value, err := source.Authorization(time.Now())
	return string(value), err
}
