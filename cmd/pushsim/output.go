package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// started is what a caller has to know of a running simulator: the JSON line
// at the start. Paths are empty where nothing was written.
type started struct {
	Event  string    `json:"event"`
	URL    string    `json:"url"`
	Token  string    `json:"token_uri"`
	Admin  string    `json:"admin,omitempty"`
	CA     string    `json:"ca_file,omitempty"`
	Config string    `json:"config_file,omitempty"`
	Apps   []appFile `json:"apps"`

	snippet string
}

type appFile struct {
	Name           string `json:"name"`
	Topic          string `json:"topic"`
	TeamID         string `json:"team_id"`
	KeyID          string `json:"key_id"`
	KeyFile        string `json:"key_file,omitempty"`
	Project        string `json:"project"`
	ServiceAccount string `json:"service_account_file,omitempty"`
}

// write writes the files that senders need, readable by their owner only.
func (f *flags) write(s *sim.Server, credentials []*sim.Credentials) (*started, error) {
	st := &started{Event: "started", URL: s.URL(), Token: s.TokenURI(), Admin: s.AdminURL(), Apps: []appFile{}}
	if f.caOut != "" {
		st.CA = f.caOut
		if err := os.WriteFile(f.caOut, s.CAPEM(), 0o600); err != nil {
			return nil, fmt.Errorf("writing the certificate: %w", err)
		}
	}
	for _, c := range credentials {
		st.Apps = append(st.Apps, appFile{Name: c.Name, Topic: c.Topic, TeamID: c.TeamID, KeyID: c.KeyID, Project: c.Project})
	}
	if f.credentialsDir == "" {
		return st, nil
	}
	dir, err := filepath.Abs(f.credentialsDir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("creating the folder of the credentials: %w", err)
	}
	st.CA, st.Config = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "worker.yaml")
	files := map[string][]byte{st.CA: s.CAPEM()}
	for i, c := range credentials {
		account, err := c.ServiceAccount(s.TokenURI())
		if err != nil {
			return nil, err
		}
		a := &st.Apps[i]
		a.KeyFile, a.ServiceAccount = filepath.Join(dir, c.Name+".p8"), filepath.Join(dir, c.Name+"-service-account.json")
		files[a.KeyFile], files[a.ServiceAccount] = c.P8, account
	}
	st.snippet = st.workerConfig()
	files[st.Config] = []byte(st.snippet)
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing credentials: %w", err)
		}
	}
	return st, nil
}

// workerConfig is the part of worker.yaml that makes a worker send here.
func (st *started) workerConfig() string {
	var b strings.Builder
	b.WriteString("apps:\n")
	for _, a := range st.Apps {
		fmt.Fprintf(&b, `  - name: %s
    apns:
      topic: %s
      team_id: %s
      key_id: %s
      key_file: %s
      environments: [production, sandbox]
      production_url: %s
      sandbox_url: %s
      ca_file: %s
    fcm:
      project: %s
      service_account_file: %s
      url: %s
      ca_file: %s
`, a.Name, a.Topic, quote(a.TeamID), quote(a.KeyID), quote(a.KeyFile), st.URL, st.URL, quote(st.CA),
			a.Project, quote(a.ServiceAccount), st.URL, quote(st.CA))
	}
	return b.String()
}

// quote quotes a YAML string, because a key id may be all digits.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s // a string always encodes
	}
	return string(b)
}

// announce prints the addresses and files at the start.
func (f *flags) announce(w io.Writer, st *started) error {
	if f.output == "json" {
		return terminal.WriteJSON(w, st, "")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(t, "%s\t%s\n", name, value) // Flush reports it
		}
	}
	row("APNs and FCM", st.URL)
	row("token endpoint", st.Token)
	row("ledger and commands", st.Admin)
	row("certificate", st.CA)
	for _, a := range st.Apps {
		row("app "+a.Name, fmt.Sprintf("topic %s, team %s, key %s, project %s", a.Topic, a.TeamID, a.KeyID, a.Project))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the addresses: %w", err)
	}
	if st.snippet == "" {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\nFor the worker's configuration (also in %s):\n\n%s\n", st.Config, st.snippet); err != nil {
		return fmt.Errorf("printing the configuration: %w", err)
	}
	return nil
}

// report prints the ledger's totals at the end.
func (f *flags) report(w io.Writer, t sim.Totals) error {
	if f.output == "json" {
		return terminal.WriteJSON(w, struct {
			Event  string     `json:"event"`
			Ledger sim.Totals `json:"ledger"`
		}{"stopped", t}, "")
	}
	b := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(b, "\npushes\t%d\t\naccepted\t%d\t\nrefused\t%d\t\naccepted again\t%d\t\nwithout id\t%d\t\n",
		t.Received, t.Accepted, t.Refused, t.Duplicates, t.WithoutID)
	for _, p := range sorted(t.Providers) {
		replies := t.Providers[p].Replies
		for _, r := range sorted(replies) {
			_, _ = fmt.Fprintf(b, "%s %s\t%d\t\n", p, r, replies[r])
		}
	}
	if err := b.Flush(); err != nil { // also the error of every Fprintf
		return fmt.Errorf("printing the ledger: %w", err)
	}
	return nil
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
