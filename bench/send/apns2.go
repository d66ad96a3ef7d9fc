//go:build linux

package send

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/payload"
	"github.com/sideshow/apns2/token"
	"golang.org/x/net/http2"
)

// driveAPNS2 lets the library build the payload of each push from its parts, as
// its users do: what ours does too when it is handed a message.
func driveAPNS2(ctx context.Context, s *Spec, c *tally) error {
	p, err := readPayload(body)
	if err != nil {
		return err
	}
	return driveLibrary(ctx, s, c, func() any {
		return payload.NewPayload().AlertTitle(p.APS.Alert.Title).AlertBody(p.APS.Alert.Body).Sound(p.APS.Sound).
			ThreadID(p.APS.ThreadID).Custom("pf_id", p.ID)
	})
}

// driveAPNS2Prebuilt hands the library the bytes of a payload, the same for all
// pushes: what is saved so is no work of a client that sends what it is told.
func driveAPNS2Prebuilt(ctx context.Context, s *Spec, c *tally) error {
	prebuilt := []byte(body)
	return driveLibrary(ctx, s, c, func() any { return prebuilt })
}

// driveLibrary has a client of apns2 per connection, as it comes but for the
// certificate to trust. It asks for the payload of each push.
func driveLibrary(ctx context.Context, s *Spec, c *tally, payload func() any) error {
	clients, err := s.libraryClients()
	if err != nil {
		return err
	}
	var loops []loop
	for i, d := range devices(s.Connections * s.Streams) {
		client := clients[i%len(clients)]
		loops = append(loops, loop{func() error {
			res, err := client.Push(&apns2.Notification{
				DeviceToken: d.token, ApnsID: d.id, Topic: s.Topic, PushType: apns2.PushTypeAlert, Priority: priority,
				Expiration: time.Unix(expiration, 0), Payload: payload(),
			})
			if err == nil && !res.Sent() {
				err = fmt.Errorf("status %d: %s", res.StatusCode, res.Reason)
			}
			return err
		}})
	}
	defer func() {
		for _, client := range clients {
			client.CloseIdleConnections()
		}
	}()
	return runLoops(ctx, loops, len(clients), c)
}

// libraryClients are as many as there are connections.
func (s *Spec) libraryClients() ([]*apns2.Client, error) {
	conf, err := s.tls()
	if err != nil {
		return nil, err
	}
	p8, err := os.ReadFile(s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the signing key: %w", err)
	}
	key, err := token.AuthKeyFromBytes(p8)
	if err != nil {
		return nil, fmt.Errorf("reading the signing key: %w", err)
	}
	signer := &token.Token{AuthKey: key, KeyID: s.KeyID, TeamID: s.TeamID}
	clients := make([]*apns2.Client, s.Connections)
	for i := range clients {
		clients[i] = apns2.NewTokenClient(signer)
		clients[i].Host = s.URL
		//lint:ignore SA1019 it is the transport that apns2 has
		clients[i].HTTPClient.Transport.(*http2.Transport).TLSClientConfig = conf.Clone()
	}
	return clients, nil
}
