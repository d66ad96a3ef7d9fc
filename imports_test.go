package pushfleet_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pushfleet/pushfleet/"

// everything, in a list of packages, stands for all of them.
const everything = "*"

// mayImport says which of our packages each package may import outside its
// tests; what is not listed is forbidden. It follows the table in
// DESIGN.md, "Who may import whom": push owns the nouns and pipeline the way
// of a notification. The packages around them depend on these two, and on each other
// only where a row says so; wiring, worker and cmd put them together. A new package
// gets its row in the commit that adds it.
var mayImport = map[string][]string{
	"push":                            nil,
	"push/decode":                     {"push"},
	"push/yieldtest":                  {"push"},
	"gates":                           {"push"},
	"pipeline":                        {"push", "gates"},
	"watch":                           {"push", "gates"},
	"events":                          {"push", "pipeline"},
	"shards":                          nil,
	"dedupe":                          {"push", "shards"},
	"users":                           {"push", "shards", "users/record", "users/state"},
	"users/erase":                     {"shards", "users", "users/record", "users/state"},
	"users/record":                    {"push"}, // a value: no topic, no Redis
	"users/state":                     {"shards", "users/record"},
	"collapse":                        {"push", "pipeline", "shards"},
	"limits":                          {"push", "shards"},
	"limits/senders":                  {"limits", "shards"},
	"limits/model":                    nil, // judges the algorithms, so it knows nothing of them
	"pauses":                          {"push", "gates", "shards"},
	"rates":                           {"push", "shards"}, // gates ask it by an interface of theirs
	"segments":                        nil,
	"segments/s3":                     {"segments"},
	"subscriptions":                   {"push"},                           // Cassandra is an interface
	"inbox":                           {"push"},                           // Cassandra is an interface
	"clicks":                          {"push"},                           // Cassandra is an interface
	"audiences":                       {"push", "fanout", "users/record"}, // Cassandra and Kafka are interfaces
	"audiences/audiencestest":         {"audiences", "fanout"},
	"clicks/clickstest":               {"clicks"},
	"journal":                         nil, // Cassandra is an interface
	"journal/journaltest":             {"journal"},
	"inbox/inboxtest":                 {"push", "inbox"},
	"crowd":                           {"push"},
	"explain":                         {"push"},
	"forms":                           {"push", "users", "users/record"},                                                                                                                                                // users in words: no terminal, no HTTP
	"gateway":                         {"push", "push/decode", "explain", "forms", "users", "users/record", "gateway/quota", "gateway/seal", "subscriptions", "fanout", "inbox", "clicks", "journal", "gateway/viewer"}, // HTTP; Kafka, the registry and Cassandra are interfaces
	"gateway/firsts":                  {"shards"},
	"gateway/seal":                    nil,
	"gateway/quota":                   {"shards"},
	"gateway/viewer":                  nil,
	"gateway/webhooks":                {"push", "forms"},       // Kafka is an interface
	"fanout":                          {"push", "push/decode"}, // Kafka, audiences and tables are interfaces
	"quiet":                           {"push"},                // a decision: no store, no clock
	"sizing":                          nil,                     // arithmetic over a value, for a command or a page
	"stages":                          {"push", "pipeline", "limits", "quiet", "inbox", "journal"},
	"providers/h2":                    nil,
	"providers/calls":                 {"push", "pipeline"},
	"providers/exchange":              {"push", "pipeline", "providers/h2", "providers/calls"},
	"providers/payload":               {"push"},
	"providers/feedback":              {"push"},
	"providers/account":               {"push"},
	"providers/check":                 nil, // none of the clients that it checks the way of
	"providers/apns":                  {"push", "pipeline", "providers/h2", "providers/calls", "providers/exchange", "providers/payload", "providers/feedback"},
	"providers/fcm":                   {"push", "pipeline", "providers/h2", "providers/calls", "providers/exchange", "providers/payload", "providers/feedback"},
	"providers/sim":                   {"providers/sim/engine"},
	"providers/sim/engine":            nil, // knows no provider
	"providers/sim/wiretest":          nil,
	"providers/providertest":          {"push", "push/decode", "pipeline", "providers/h2", "providers/sim"},
	"kafka":                           {"push", "push/decode", "pipeline", "watch"},
	"dashboard":                       {"push", "events", "explain", "kafka", "dlq", "sizing", "fanout"}, // look-ups are an interface
	"dashboard/browsertest":           {"deploy/local"},
	"dlq":                             {"push", "push/decode", "kafka"},
	"traces":                          {"push", "pipeline"},         // the SDK of OpenTelemetry
	"status":                          {"push", "deploy/cassandra"}, // the schema it applies
	"status/statustest":               {"push", "pipeline"},
	"subscriptions/subscriptionstest": {"push", "subscriptions"},
	"configs":                         {"push"},
	"client":                          nil, // others build it into their services
	"deploy/cassandra":                nil,
	"deploy/embedded":                 nil,
	"deploy/declaredtest":             nil,
	"deploy/grafana":                  nil,
	"deploy/local":                    nil,
	"deploy/local/localtest":          {"deploy/local"},
	"deploy/local/keyspacetest":       {"deploy/local/localtest", "status"}, // whose tables it makes
	"deploy/local/servers":            {"deploy/local"},
	"shards/shardstest":               {"shards", "deploy/embedded"},
	"users/userstest":                 {"push", "shards", "users", "users/record", "deploy/embedded", "deploy/local"},
	"wiring":                          {everything},
	"wiring/reach":                    {"push", "configs", "dlq", "kafka", "limits", "shards", "status", "wiring"},
	"wiring/lookup":                   {"push", "pipeline", "configs", "explain", "limits", "limits/senders", "quiet", "segments", "shards", "stages", "users", "wiring", "wiring/reach"},
	"wiring/dashboards":               {"push", "configs", "dashboard", "dlq", "explain", "fanout", "forms", "kafka", "wiring", "wiring/lookup", "wiring/reach"},
	"wiring/rightstest":               {"configs", "kafka", "wiring"},
	"worker":                          {everything},
	"cmd/memory":                      nil,
	"cmd/terminal":                    nil,
	"cmd/pushworker":                  {everything},
	"cmd/pushgateway":                 {everything},
	"cmd/pushdemo":                    {everything},
	"cmd/pushctl":                     {everything},
	"cmd/pushsim":                     {everything},
	"cmd/pushbench":                   {everything},
	"bench/worker":                    {everything},
	"bench/servers":                   {everything},
	"bench/fleet":                     {everything},
	"bench/fleet/fleettest":           nil,
	"bench/send":                      {everything},
	"bench/gates":                     {everything},
	"bench/gateway":                   {everything},
	"bench/beside":                    {everything},
	"bench/endtoend":                  {everything}, // tests only
	"bench/channel":                   nil,          // tests only
	"bench/lookup":                    {"segments"},
	"bench/stress":                    {everything},
	"bench/usage":                     nil,
	"bench/latency":                   {"bench/servers"},
	"bench/chart":                     nil,
	"bench/parts":                     nil,
	"bench/channel/beep":              {"push", "pipeline", "providers/account", "providers/calls"},
	"bench/mutation":                  nil,
	"bench/mutants":                   {everything},
	"bench/mutants/cmd":               {everything},
	"bench/mutants/planted":           {everything},
	"bench/chaos":                     {everything},
	"bench/chaos/cmd":                 {everything},
	"bench/chaos/invariants":          nil, // judges the worker, so it knows nothing of it
	"bench/chaos/proxy":               nil,
	"bench/chaos/records":             nil, // says what the contract demands, so it knows nothing of the worker

	"deploy/grafana/generate":    {"deploy/grafana"},
	"deploy/grafana/grafanatest": {"deploy/grafana"},
}

// testsMayImport is what the tests of every package may import besides: the
// nouns, servers to test against, and clients of them.
var testsMayImport = []string{"push", "push/decode", "pipeline", "providers/sim", "deploy/embedded", "deploy/local", "deploy/local/localtest", "deploy/local/keyspacetest", "shards/shardstest", "push/yieldtest"}

// testsAlso is what the tests of single packages may import besides that.
var testsAlso = map[string][]string{
	"audiences": {"audiences/audiencestest"},
	"clicks":    {"clicks/clickstest"},
	"client": { // which is tried on a whole gateway
		"gateway", "gateway/quota", "inbox", "clicks", "journal", "subscriptions", "fanout", "users", "users/userstest"},
	"fanout":          {"kafka"}, // whose partitions and groups it must agree with
	"dashboard":       {"dashboard/browsertest"},
	"deploy":          {"configs"},                        // the manifests are checked against the defaults
	"deploy/alerts":   {"configs", "deploy/declaredtest"}, // and so are the rules
	"deploy/embedded": {"shards"},
	"deploy/grafana":  {"deploy/declaredtest"},
	"gateway":         {"shards", "audiences", "users/userstest", "dashboard/browsertest"}, // a Redis for limits of senders; a browser for the contract
	"inbox":           {"inbox/inboxtest"},
	"journal":         {"journal/journaltest"},
	"kafka":           {"bench/chaos/records", "events"}, // who tells its ranges, and who adds them up
	"providers/apns":  {"providers/providertest", "bench/chaos/proxy"},
	"providers/fcm":   {"providers/providertest"},
	"providers/check": {"providers/apns"},         // whose signatures it checks with
	"limits":          {"limits/model", "status"}, // whose session its tests on a real Cassandra use
	"limits/senders":  {"limits/model"},
	"sizing":          {"configs", "dedupe", "shards", "status", "users/record"}, // whose settings, sizes and bytes it reckons with
	"users":           {"users/userstest"},
	"users/erase":     {"users/userstest"},
	"stages":          {"dedupe", "shards"}, // a filter whose Redis goes away
	"status":          {"status/statustest"},
	"subscriptions":   {"subscriptions/subscriptionstest"},

	"providers/sim":        {"providers/sim/wiretest", "gates", "pauses", "providers/calls", "rates", "shards"}, // a fleet that keeps to the quota that it announces
	"providers/sim/engine": {"providers/sim/wiretest"},
}

// floors are the folders that put others together, from the ground up. What is in none
// of them stands on the ground, and its row says whom it may import there. No import
// runs up, and no program imports another one.
var floors = []string{"wiring", "worker", "bench", "cmd"}

// floor is the floor that a package stands on; 0 = the ground.
func floor(folder string) int {
	return 1 + slices.IndexFunc(floors, func(room string) bool { return within(folder, room) })
}

// within reports whether a package is in a room: in its folder, or below.
func within(folder, room string) bool { return folder == room || strings.HasPrefix(folder, room+"/") }

// workshop are the rooms of what judges, measures and imitates. They may import each
// other, and are carried by the programs that are named here alone.
var workshop = map[string][]string{
	"bench":                  {"cmd/pushbench"},
	"deploy/local":           {"cmd/pushbench"},
	"deploy/embedded":        {"cmd/pushdemo", "cmd/pushbench"},
	"providers/sim":          {"cmd/pushdemo", "cmd/pushsim", "cmd/pushbench"},
	"providers/providertest": nil,
	"shards/shardstest":      nil,
	"users/userstest":        nil,
	"status/statustest":      nil,
	"wiring/rightstest":      nil,
	"dashboard/browsertest":  nil,
	"limits/model":           nil,
}

// room is the room of the workshop that a package is in; empty = it is in none.
func room(folder string) string {
	for name := range workshop {
		if within(folder, name) {
			return name
		}
	}
	return ""
}

// plantedOnly is what commands import only in files that are built with the tag
// planted: bugs.
const plantedOnly = "bench/mutants/planted"

// confined says which packages may import a module outside their tests, and in
// their tests besides. Rows are found by the longest prefix; a module without
// a row is refused, so that a dependency is a decision.
var confined = map[string]struct{ in, tests []string }{
	"github.com/twmb/franz-go":           {in: []string{"kafka", "bench/chaos", "bench/mutants", "wiring/rightstest"}, tests: []string{"worker", "dashboard", "cmd/pushctl", "cmd/pushgateway", "deploy/local", "deploy/embedded", "bench/endtoend"}},
	"github.com/twmb/franz-go/pkg/kfake": {in: []string{"deploy/embedded", "bench/mutants", "wiring/rightstest"}, tests: []string{everything}},
	"github.com/gocql/gocql":             {in: []string{"status", "bench/chaos"}, tests: []string{"deploy/local"}},
	"github.com/redis/go-redis":          {in: []string{"shards", "shards/shardstest", "dedupe", "users", "limits", "limits/senders", "collapse", "pauses", "gateway/firsts", "users/erase", "users/state", "users/userstest"}, tests: []string{"deploy/embedded", "gateway/quota"}},
	"go.opentelemetry.io/otel":           {in: []string{"traces"}, tests: []string{"worker"}},
	"github.com/RoaringBitmap/roaring":   {in: []string{"segments"}},
	"github.com/bits-and-blooms/bloom":   {in: []string{"bench/lookup"}},
	"github.com/minio/minio-go":          {in: []string{"segments/s3"}},
	"github.com/alicebob/miniredis":      {in: []string{"deploy/embedded"}, tests: []string{everything}},
	"golang.org/x/net/http2":             {in: []string{"providers/h2", "providers/sim/engine", "providers/sim/wiretest", "bench/send"}, tests: []string{"providers/apns", "providers/sim"}},
	"github.com/sideshow/apns2":          {in: []string{"providers/apns", "bench/send"}, tests: []string{"providers/sim"}},
	"firebase.google.com/go":             {tests: []string{"providers/fcm", "providers/sim"}},
	"github.com/spf13/cobra":             {in: []string{"cmd/pushworker", "cmd/pushgateway", "cmd/pushdemo", "cmd/pushctl", "cmd/pushsim", "cmd/pushbench"}},
	"github.com/spf13/pflag":             {in: []string{"cmd/pushctl", "cmd/pushsim"}},
	"golang.org/x/term":                  {in: []string{"cmd/terminal"}},
	"golang.org/x/sys":                   {in: []string{"deploy/local"}},
	"golang.org/x/oauth2":                {in: []string{"providers/fcm", "providers/check"}, tests: []string{"providers/sim"}},
	"google.golang.org/api":              {tests: []string{"providers/fcm", "providers/sim"}},
	"github.com/golang-jwt/jwt":          {tests: []string{"providers/apns", "providers/fcm"}},
	"github.com/HdrHistogram":            {in: []string{"cmd/pushdemo"}},
	"go.yaml.in/yaml":                    {in: []string{"configs"}, tests: []string{everything}},
	"github.com/santhosh-tekuri":         {tests: []string{everything}},
	"github.com/chromedp":                {in: []string{"dashboard/browsertest"}, tests: []string{"dashboard"}}, // a browser
	"go.uber.org/goleak":                 {in: []string{"bench/fleet/fleettest"}, tests: []string{everything}},
	"pgregory.net/rapid":                 {in: []string{"subscriptions/subscriptionstest"}, tests: []string{everything}},
	"github.com/prometheus":              {in: []string{everything}},
	"github.com/cespare/xxhash":          {in: []string{everything}},
	"github.com/google/uuid":             {in: []string{everything}},
	"github.com/KimMachineGun":           {in: []string{"cmd/memory"}},
	"github.com/google/pprof":            {in: []string{"bench/parts"}},
	"golang.org/x/sync":                  {in: []string{everything}},
}

// vague are package names that say nothing about what is in them.
var vague = []string{"util", "utils", "common", "types", "helpers", "helper", "interfaces", "mocks", "base"}

// source is one parsed Go file of the module.
type source struct {
	path   string // from the module's root, with slashes
	folder string
	test   bool
	file   *ast.File
	fset   *token.FileSet
}

func (s source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// planted says whether a file is built with the tag planted only.
func (s source) planted() bool {
	for _, group := range s.file.Comments {
		if group.Pos() < s.file.Package && slices.ContainsFunc(group.List, func(c *ast.Comment) bool { return c.Text == "//go:build planted" }) {
			return true
		}
	}
	return false
}

// sources parses every Go file below the working directory, the module's root.
func sources(t *testing.T) []source {
	t.Helper()
	var found []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(name)
		found = append(found, source{
			path: slashed, folder: path.Dir(slashed), test: strings.HasSuffix(name, "_test.go"), file: file, fset: fset,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("found only %d Go files: not at the module's root", len(found))
	}
	return found
}

func allows(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, everything)
}

func TestOurImports(t *testing.T) {
	unknown := map[string]bool{}
	for _, s := range sources(t) {
		if s.folder == "." {
			continue // this file
		}
		row, known := mayImport[s.folder]
		if !known && !s.test {
			if !unknown[s.folder] {
				t.Errorf("package %s has no row: add it to mayImport in imports_test.go, with what it may import", s.folder)
			}
			unknown[s.folder] = true
			continue
		}
		for _, p := range s.imports() {
			ours, is := strings.CutPrefix(p, module)
			if !is || ours == s.folder {
				continue
			}
			allowed := allows(row, ours)
			if s.test {
				allowed = allowed || allows(testsMayImport, ours) || allows(testsAlso[s.folder], ours)
			} else {
				if ours == plantedOnly && strings.HasPrefix(s.folder, "cmd/") {
					allowed = allowed && s.planted()
				}
			}
			if !allowed {
				t.Errorf("%s may not import %s: see mayImport in imports_test.go", s.path, ours)
			}
		}
	}
}

// The picture of the packages has no arrow up, and what only judges the worker is in no
// program that operators run.
func TestNoArrowRunsUp(t *testing.T) {
	arrows := 0
	for _, s := range sources(t) {
		if s.test || s.folder == "." || s.planted() {
			continue
		}
		for _, p := range s.imports() {
			to, is := strings.CutPrefix(p, module)
			if !is {
				continue
			}
			arrows++
			if floor(to) > floor(s.folder) {
				t.Errorf("%s imports %s, which stands above it", s.path, to)
			}
			if within(s.folder, "cmd") && within(to, "cmd") && to != "cmd/terminal" && to != "cmd/memory" {
				t.Errorf("%s imports %s: a program is imported by none", s.path, to)
			}
			if shop := room(to); shop != "" && room(s.folder) == "" && !slices.Contains(workshop[shop], s.folder) {
				t.Errorf("%s imports %s, which is for %v only", s.path, to, workshop[shop])
			}
		}
	}
	if arrows < 100 {
		t.Errorf("found %d imports of ours, want hundreds", arrows)
	}
}

// The drawing of the rooms in DESIGN.md has all arrows of today, and none of them leads
// to the line of its own room or above, so the rooms form no circle.
func TestRoomsAreAsDrawn(t *testing.T) {
	arrows, total := map[string][]string{}, 0
	for _, s := range sources(t) {
		if s.test || s.folder == "." || s.planted() || strings.HasSuffix(s.folder, "test") {
			continue // a test, or a package of test helpers
		}
		from, _, _ := strings.Cut(s.folder, "/")
		if arrows[from] == nil {
			arrows[from] = []string{}
		}
		for _, p := range s.imports() {
			ours, is := strings.CutPrefix(p, module)
			to, _, _ := strings.Cut(ours, "/")
			if is && to != from && !slices.Contains(arrows[from], to) {
				arrows[from] = append(arrows[from], to)
				total++
			}
		}
	}
	design, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("rooms: %d, arrows: %d\n", len(arrows), total)
	_, drawing, found := strings.Cut(string(design), head)
	if !found {
		t.Fatalf("DESIGN.md, \"The rooms, before and after\", does not say %q", head)
	}
	drawing, _, _ = strings.Cut(drawing, "```")
	above := map[string]bool{}
	for line := range strings.Lines(drawing) {
		left, right, is := strings.Cut(line, " ▶")
		if !is {
			continue // the ground's edge
		}
		fields := strings.Fields(left)
		name := fields[0]
		to, known := arrows[name]
		above[name] = true
		slices.Sort(to)
		if named := strings.Fields(right); !known || len(fields) != 2 || fields[1] != strconv.Itoa(len(to)) || floor(name) == 0 && !slices.Equal(named, to) {
			t.Errorf("DESIGN.md draws %q; %s has %d arrows, to %s", strings.TrimSpace(line), name, len(to), strings.Join(to, " "))
		}
		for _, room := range to {
			if above[room] {
				t.Errorf("the arrow from %s to %s does not lead down", name, room)
			}
		}
	}
	for name := range arrows {
		if !above[name] {
			t.Errorf("DESIGN.md does not draw %s", name)
		}
	}
}

func TestThirdPartyImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, p := range s.imports() {
			first, _, _ := strings.Cut(p, "/")
			if !strings.Contains(first, ".") || strings.HasPrefix(p, module) {
				continue // the standard library, or ours
			}
			prefix := longestPrefix(p)
			if prefix == "" {
				t.Errorf("%s imports %s, which has no row: say in confined in imports_test.go where it may be used", s.path, p)
				continue
			}
			row := confined[prefix]
			if !allows(row.in, s.folder) && !(s.test && allows(row.tests, s.folder)) {
				t.Errorf("%s may not import %s: %s is confined to %v, and in tests %v", s.path, p, prefix, row.in, row.tests)
			}
		}
	}
}

// longestPrefix is the row of confined that an import path falls under.
func longestPrefix(p string) string {
	longest := ""
	for prefix := range maps.Keys(confined) {
		if (p == prefix || strings.HasPrefix(p, prefix+"/")) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return longest
}

func TestPackageNames(t *testing.T) {
	for _, s := range sources(t) {
		name := strings.TrimSuffix(s.file.Name.Name, "_test")
		if slices.Contains(vague, name) || slices.Contains(vague, path.Base(s.folder)) {
			t.Errorf("%s: package %s in %s: name it for what it holds", s.path, name, s.folder)
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			documented[s.folder] = documented[s.folder] || s.file.Doc != nil
		}
	}
	for folder, is := range documented {
		if !is {
			t.Errorf("package %s has no doc comment that says what it is for", folder)
		}
	}
}

// A client that does not verify its server hands tokens and keys to whoever
// answers; tests have certificate authorities of their own and need it no more
// than the worker does.
func TestEveryServerIsVerified(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			var set []ast.Expr // what n gives a value; asking whether it is set is fine
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				set = []ast.Expr{n.Key}
			case *ast.AssignStmt:
				set = n.Lhs
			}
			for _, e := range set {
				if field, is := e.(*ast.SelectorExpr); is {
					e = field.Sel
				}
				if name, is := e.(*ast.Ident); is && name.Name == "InsecureSkipVerify" {
					t.Errorf("%s: InsecureSkipVerify is never set; give the client the server's CA", s.fset.Position(name.Pos()))
				}
			}
			return true
		})
	}
}

// A misspelt name in a row would allow nothing, or later something else.
func TestRowsNamePackagesWithRows(t *testing.T) {
	folders := map[string]bool{}
	for _, s := range sources(t) {
		folders[s.folder] = true
	}
	is := func(list, name string) {
		if !folders[name] && name != everything {
			t.Errorf("%s names %q, where there is no package", list, name)
		}
	}
	for folder := range mayImport {
		is("mayImport", folder)
	}
	for folder := range testsAlso {
		is("testsAlso", folder)
	}
	for prefix, row := range confined {
		for _, folder := range slices.Concat(row.in, row.tests) {
			is("confined, at "+prefix+",", folder)
		}
	}
	for name := range workshop {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(folders)), func(folder string) bool { return within(folder, name) }) {
			t.Errorf("workshop names %q, where there is no package", name)
		}
	}
	for folder, row := range mayImport {
		for _, name := range row {
			if _, known := mayImport[name]; !known && name != everything {
				t.Errorf("mayImport[%q] names %q, which has no row", folder, name)
			}
		}
	}
	for _, name := range append(slices.Clone(testsMayImport), plantedOnly) {
		if _, known := mayImport[name]; !known {
			t.Errorf("%q has no row in mayImport", name)
		}
	}
}

// What a row allows and nobody uses would let it come back unseen.
func TestRowsAllowWhatIsUsed(t *testing.T) {
	code, tests := map[string]bool{}, map[string]bool{} // folder + " " + package of ours, or row of confined
	for _, s := range sources(t) {
		for _, p := range s.imports() {
			used, ours := strings.CutPrefix(p, module)
			if !ours {
				used = longestPrefix(p)
			}
			for _, who := range []string{s.folder, everything} {
				tests[who+" "+used] = true // the code's imports too
				code[who+" "+used] = code[who+" "+used] || !s.test
			}
		}
	}
	check := func(list, folder, used string, by map[string]bool) {
		if used != everything && !by[folder+" "+used] {
			t.Errorf("%s lets %s import %s, which it does not", list, folder, used)
		}
	}
	for folder, row := range mayImport {
		for _, used := range row {
			check("mayImport", folder, used, code)
		}
	}
	for folder, row := range testsAlso {
		for _, used := range row {
			check("testsAlso", folder, used, tests)
		}
	}
	for prefix, row := range confined {
		for _, folder := range row.in {
			check("confined", folder, prefix, code)
		}
		for _, folder := range row.tests {
			check("confined, in tests,", folder, prefix, tests)
		}
	}
}
