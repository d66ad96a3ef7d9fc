//go:build unix

package endtoend

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/grafana"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/segments"
)

// A client for another language, which a generator has made of the contract and nobody
// here has written, does all that the contract has: it registers devices, sends by HTTP to
// one and to a topic, and reads what came from an inbox. Behind the gateway is a whole fleet.
// Then all panels show something of what gateway and fan-outs tell.
func TestAGeneratedClientDoesTheTour(t *testing.T) {
	python, err := local.ClientGenerator()
	if err != nil {
		if exec.Command("python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run() != nil {
			t.Skip("no Python 3.11, which the generator of clients needs")
		}
		t.Fatal(err)
	}
	const key = "tour-tour-tour-tour-tour-tour-tour-tour"
	dir := t.TempDir()
	w := newWorld(t, setup{configure: func(c *configs.Config) { forTheTour(t, c, dir, key) }})
	w.worker()
	ready := func(p *fleet.Process, err error) *fleet.Process {
		t.Helper()
		check(t, err)
		check(t, p.AwaitReady(waiting(t)))
		return p
	}
	ready(w.StartRegistry())
	fanout, g := ready(w.StartFanout()), ready(w.StartGateway())
	address, err := g.AwaitCallers(waiting(t))
	check(t, err)

	contract := filepath.Join(dir, "openapi.yaml")
	check(t, os.WriteFile(contract, gateway.Contract(), 0o600))
	run := func(env []string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(waiting(t), "python3", args...)
		cmd.Env = append(append(os.Environ(), "PYTHONPATH="+python+string(os.PathListSeparator)+dir, "PYTHONDONTWRITEBYTECODE=1"), env...)
		said, err := cmd.CombinedOutput()
		t.Logf("%s", said)
		if err != nil {
			t.Fatalf("python3 %s: %v", strings.Join(args, " "), err)
		}
	}
	run(nil, "-m", "openapi_python_client", "generate", "--path", contract, "--config", "tour/generator.yaml", "--meta", "none", "--fail-on-warning",
		"--output-path", filepath.Join(dir, "pushgateway"))
	run([]string{"GATEWAY=http://" + address, "KEY=" + key}, "tour/tour.py")
	w.dashboardsShow(grafana.OfGateways(), g, fanout)
}

// The tour does every operation of the contract, by the function that the generator makes of
// its operationId; but for the click on a link, which mail providers make by its address.
func TestTheTourLeavesNothingOut(t *testing.T) {
	tour, err := os.ReadFile("tour/tour.py")
	check(t, err)
	ids := regexp.MustCompile(`(?m)^ +operationId: (\w+)$`).FindAllStringSubmatch(string(gateway.Contract()), -1)
	if len(ids) < 44 {
		t.Fatalf("the contract has %d operations", len(ids))
	}
	for _, id := range ids {
		function := strings.ToLower(regexp.MustCompile(`[A-Z]`).ReplaceAllString(id[1], "_$0"))
		called := regexp.MustCompile(`\bask\(` + function + `\b|\b` + function + `\.sync_detailed\(`)
		if id[1] != "unsubscribe" && !called.Match(tour) {
			t.Errorf("the tour does not call %s", function)
		}
	}
}

// forTheTour configures all that the contract has. dir is for the files of secrets.
func forTheTour(t *testing.T, c *configs.Config, dir, key string) {
	t.Helper()
	c.Lanes[0].Inbox, c.Lanes[0].Journal = true, 24*time.Hour
	g := &c.Gateway
	g.Listen, g.AdminListen, g.Fanout.AdminListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	g.Registry, g.Topics, g.Inbox, g.Fanout.Enabled, g.Clicks.Enabled, g.Audiences, c.Registry.Audiences = true, true, true, true, true, true, true
	g.Limits.Default = configs.SenderLimits{Day: 1_000_000} // which nobody uses up, and dashboards show
	g.Lanes = []configs.GatewayLane{{ServiceType: "transactional", Lane: fleet.Lane}}
	c.Segments.Source = segmentOf(t, dir, "tour-reached")
	g.KeysFile, g.ReceiptsFile = filepath.Join(dir, "keys.json"), filepath.Join(dir, "receipts.key")
	g.Confidential.KeysFile = filepath.Join(dir, "confidential.key")
	check(t, os.WriteFile(g.Confidential.KeysFile, []byte(strings.Repeat("sealed-", 6)), 0o600))
	hash := sha256.Sum256([]byte(key))
	keys, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"name": "tour", "sha256": hex.EncodeToString(hash[:]), "sender": "tour", "apps": []string{fleet.App}, "rights": []string{"send", "broadcast", "read", "users", "admin"}}}})
	check(t, err)
	check(t, os.WriteFile(g.KeysFile, keys, 0o600))
	check(t, os.WriteFile(g.ReceiptsFile, fmt.Appendf(nil, "%s\nids 2026-01-01T00:00:00Z %s\n", strings.Repeat("receipts-", 4), strings.Repeat("ids-", 8)), 0o600))
}

// segmentOf writes a file in which a user is in the segment lifecycle/new, and nobody in
// lifecycle/gone.
func segmentOf(t *testing.T, dir, user string) (path string) {
	t.Helper()
	number, known := segments.ByHash.Of(user, 0, false)
	if !known {
		t.Fatalf("%s has no number", user)
	}
	var b segments.Builder
	check(t, errors.Join(b.AddGroup("lifecycle", false, segments.ByHash), b.AddUsers("lifecycle", "new", segments.UsersOf(number)), b.AddUsers("lifecycle", "gone", segments.UsersOf())))
	set, err := b.Build(1, time.Now())
	check(t, err)
	path = filepath.Join(dir, "segments")
	check(t, segments.WriteFile(path, set))
	return path
}
