package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// messagesAnHour is what callers may send in an hour: little enough that somebody who
// tries sees the headers count down, and what follows.
const messagesAnHour = 1000

// serve lets a worker and a gateway go on until ctx ends. listening is told once where, and the
// key of its caller, and must not wait. Either of them that ends by itself ends it with an error.
func (d *demo) serve(ctx context.Context, listen string, listening func(at net.Addr, key string)) error {
	key, err := d.world.admitCallers(listen)
	if err != nil {
		return fmt.Errorf("setting up the gateway: %w", err)
	}
	log, err := wiring.NewUsersLog(d.options)
	if err != nil {
		return err
	}
	defer log.Close()
	people := gateway.NewUsers(log, nil)
	defer people.Close()

	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var both sync.WaitGroup
	both.Go(func() {
		if err := d.work(serving); err != nil {
			stop(fmt.Errorf("worker: %w", err))
		}
	})
	both.Go(func() {
		err := worker.RunGateway(serving, worker.GatewayOptions{Config: d.world.config, Log: d.log, Metrics: prometheus.NewRegistry(), Users: people,
			OpenStatus: func(context.Context, status.Options) (worker.Status, error) { return openStore{d.world.status}, nil },
			Listening:  func(at net.Addr) { listening(at, key) }})
		if err != nil && !errors.Is(err, context.Canceled) {
			stop(fmt.Errorf("gateway: %w", err))
		}
	})
	both.Wait()
	if err := context.Cause(serving); !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return nil // it ended as ctx did
}

// admitCallers configures a gateway that listens at an address, and returns the key of
// its only caller.
func (w *demoWorld) admitCallers(listen string) (key string, err error) {
	key = rand.Text() + rand.Text()
	hash, err := gateway.KeyHash(key)
	if err != nil {
		return "", err
	}
	keys, err := json.Marshal(map[string]any{"keys": []map[string]any{
		{"name": "demo", "sha256": hash, "sender": "demo", "apps": []string{demoApp}, "rights": []string{"send", "read", "users"}}}})
	if err != nil {
		return "", err
	}
	g := &w.config.Gateway
	g.Listen, g.AdminListen = listen, ""
	g.KeysFile, g.ReceiptsFile = filepath.Join(w.dir, "keys.json"), filepath.Join(w.dir, "receipts.key")
	g.Limits.Default = configs.SenderLimits{Hour: messagesAnHour}
	for file, content := range map[string][]byte{g.KeysFile: keys, g.ReceiptsFile: []byte(rand.Text() + rand.Text() + "\n")} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", err
		}
	}
	if err := w.config.Validate(); err != nil {
		return "", err
	}
	return key, w.config.CheckGateway()
}

// invite prints commands that work in any shell, with a user who has devices.
func (d *demo) invite(at net.Addr, key string) {
	body, err := json.Marshal(d.invitingMessage())
	if err != nil {
		panic(err) // a struct of texts always encodes
	}
	_, _ = fmt.Fprintf(d.stderr, `
The fleet goes on, and a gateway listens at http://%[1]s until Ctrl-C. In another terminal:

  curl -i http://%[1]s/v1/messages -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' \
    -d '%[3]s'

and, with the receipt of its answer, what became of it:

  curl http://%[1]s/v1/receipts/RECEIPT -H 'Authorization: Bearer %[2]s'

A caller may send %[4]d messages an hour here: the headers X-RateLimit-* count them. The whole contract, to read and
to try in a browser: http://%[1]s/openapi
`, at, key, body, messagesAnHour)
}

// reachable is a user whom a message reaches.
func (d *demo) reachable() string {
	for i := range d.people.Users {
		if u := d.people.User(i); u.Kind == crowd.Plain && len(u.Devices) > 0 {
			return u.ID
		}
	}
	return ""
}
