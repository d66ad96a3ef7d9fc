//go:build linux

package send

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// loop is one of the goroutines that a blocking client needs for each stream:
// push sends to its device and returns an error unless that is answered 200.
type loop struct{ push func() error }

// run goes on until ctx ends or a push fails.
func (l *loop) run(ctx context.Context, c *tally) {
	for ctx.Err() == nil {
		since := time.Now()
		if err := l.push(); err != nil {
			c.fail(err)
			return // the measurement has failed
		}
		c.answer(time.Since(since))
	}
}

// runLoops starts them all. The first of each connection goes ahead alone:
// before the server's settings are known, clients would open more connections
// than they are meant to have.
func runLoops(ctx context.Context, loops []loop, first int, c *tally) error {
	for i := range loops[:first] {
		if err := loops[i].push(); err != nil {
			return fmt.Errorf("the first push: %w", err)
		}
	}
	var all sync.WaitGroup
	for i := range loops {
		all.Go(func() { loops[i].run(ctx, c) })
	}
	all.Wait()
	return nil
}

// driveNetHTTP has a transport of net/http per connection.
func driveNetHTTP(ctx context.Context, s *Spec, c *tally) error {
	conf, err := s.tls()
	if err != nil {
		return err
	}
	auth, err := s.authorization()
	if err != nil {
		return err
	}
	transports := make([]*http.Transport, s.Connections)
	for i := range transports {
		transports[i] = newTransport(conf)
		defer transports[i].CloseIdleConnections()
	}
	var loops []loop
	for i, d := range devices(s.Connections * s.Streams) {
		client := &http.Client{Transport: transports[i%len(transports)]}
		url := s.URL + devicePath + d.token
		header := http.Header{
			"Authorization": {auth}, "Apns-Topic": {s.Topic}, "Apns-Push-Type": {pushType}, "Apns-Priority": {strconv.Itoa(priority)},
			"Apns-Expiration": {strconv.Itoa(expiration)}, "Apns-Id": {d.id},
		}
		payload := []byte(body)
		loops = append(loops, loop{func() error { return post(client, url, header, payload) }})
	}
	return runLoops(ctx, loops, len(transports), c)
}

func newTransport(conf *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Transport{
		TLSClientConfig: conf.Clone(), Protocols: protocols, DisableCompression: true,
		HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true},
	}
}

func post(client *http.Client, url string, header http.Header, payload []byte) error {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(payload))
	if err != nil {
		return err
	}
	req.Header = header.Clone() // a request's is its own
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}
