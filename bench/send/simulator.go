//go:build linux

package send

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
)

// startTime is how long a simulator may take until it listens.
const startTime = 20 * time.Second

// simulator is a pushsim as a child process, which dies with this one.
type simulator struct {
	process *local.Process
	output  *os.File // our end of its standard output
	log     *bytes.Buffer
	started
}

// started is what pushsim says first.
type started struct {
	URL   string `json:"url"`
	Admin string `json:"admin"`
	CA    string `json:"ca_file"`
	Apps  []struct {
		Topic   string `json:"topic"`
		TeamID  string `json:"team_id"`
		KeyID   string `json:"key_id"`
		KeyFile string `json:"key_file"`
	} `json:"apps"`
}

// stopTime is how long a simulator may take to end; it does so at once unless
// it has a profile to write.
const stopTime = 5 * time.Second

// startSimulator runs pushsim with some more flags. The keys it makes are below
// dir, under its name, which is also that of its CPU profile.
func startSimulator(ctx context.Context, o *Options, dir, name string, flags []string, environ ...string) (*simulator, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the simulator: %w", err)
	}
	s := &simulator{output: r, log: new(bytes.Buffer)}
	cmd := exec.Command(o.Simulator, append(flags, "--count-only", "-o", "json", "--write-credentials", filepath.Join(dir, name))...)
	if o.Profiles != "" {
		cmd.Args = append(cmd.Args, "--cpu-profile", filepath.Join(o.Profiles, name+".pprof"))
	}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), environ...), w, s.log
	s.process, err = local.StartProcess(cmd)
	_ = w.Close() // the child has its own copy
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("starting the simulator: %w: %s", err, bytes.TrimSpace(s.log.Bytes()))
	}
	return s, nil
}

// await reads the line that says where it listens.
func (s *simulator) await(ctx context.Context) error {
	if err := s.output.SetReadDeadline(time.Now().Add(startTime)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = s.output.SetReadDeadline(time.Now()) })()
	line, err := bufio.NewReader(s.output).ReadBytes('\n')
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if err := json.Unmarshal(line, &s.started); err != nil {
		return fmt.Errorf("what it said: %w", err)
	}
	if len(s.Apps) == 0 || s.URL == "" || s.Admin == "" {
		return errors.New("it did not say where it listens")
	}
	return nil
}

// close ends it and waits until it is gone.
func (s *simulator) close() {
	s.process.End(stopTime)
	_ = s.output.Close()
}

// measure runs one client against it.
func (s *simulator) measure(ctx context.Context, o *Options, client string, connections int, name string) (*Figures, error) {
	spec := s.spec(o, client, connections, name)
	if client == clientH2Load {
		return bestH2Load(ctx, o, &spec, s.received)
	}
	return runClient(ctx, o, spec, name)
}

// spec is the work of a client of this simulator.
func (s *simulator) spec(o *Options, client string, connections int, name string) Spec {
	warmUp, measure := o.times(name)
	app := s.Apps[0]
	return Spec{
		Client: client, URL: s.URL, CAFile: s.CA, Topic: app.Topic, TeamID: app.TeamID, KeyID: app.KeyID, KeyFile: app.KeyFile,
		Connections: connections, Streams: streams, WarmUp: warmUp, Measure: measure, Server: s.process.PID(),
	}
}

func (s *simulator) setLatency(ctx context.Context, latency time.Duration) error {
	order, err := json.Marshal(map[string]string{"provider": "apns", "latency": latency.String()})
	if err == nil {
		_, err = s.ask(ctx, http.MethodPost, "/faults", order)
	}
	if err != nil {
		return fmt.Errorf("setting the simulator's latency: %w", err)
	}
	return nil
}

// received is how many pushes came so far.
func (s *simulator) received(ctx context.Context) (int64, error) {
	body, err := s.ask(ctx, http.MethodGet, "/ledger", nil)
	var totals struct {
		Received int64 `json:"received"`
	}
	if err == nil {
		err = json.Unmarshal(body, &totals)
	}
	if err != nil {
		return 0, fmt.Errorf("asking the simulator's ledger: %w", err)
	}
	return totals.Received, nil
}

func (s *simulator) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.Admin+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", res.Status, answer)
	}
	return answer, err
}
