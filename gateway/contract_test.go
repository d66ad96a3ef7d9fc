package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// document is the contract as a JSON value, with a compiler of its schemas.
var document = sync.OnceValues(func() (map[string]any, error) {
	var raw any
	if err := yaml.Unmarshal(Contract(), &raw); err != nil {
		return nil, err
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	return doc.(map[string]any), nil
})

// schemas compiles parts of the contract, each once.
var schemas = struct {
	sync.Mutex
	compiler *jsonschema.Compiler // guarded by the mutex
}{}

// schemaAt is the schema at a place of the contract.
func schemaAt(t *testing.T, place ...string) *jsonschema.Schema {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	schemas.Lock()
	defer schemas.Unlock()
	if schemas.compiler == nil {
		schemas.compiler = jsonschema.NewCompiler()
		schemas.compiler.AssertFormat()
		if err := schemas.compiler.AddResource("https://contract.test/openapi", doc); err != nil {
			t.Fatal(err)
		}
	}
	var pointer strings.Builder
	for _, p := range place {
		p = strings.NewReplacer("~", "~0", "/", "~1").Replace(p)
		pointer.WriteString("/" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(p))
	}
	s, err := schemas.compiler.Compile("https://contract.test/openapi#" + pointer.String())
	if err != nil {
		t.Fatalf("%s: %v", pointer.String(), err)
	}
	return s
}

// at walks down the contract.
func at(v any, path ...string) any {
	for _, p := range path {
		m, _ := v.(map[string]any)
		if v = m[p]; v == nil {
			return nil
		}
		if ref, is := v.(map[string]any)["$ref"].(string); is {
			doc, _ := document()
			v = at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return v
}

// inContract holds an answer against the contract: route, status, media type and body.
func inContract(t *testing.T, pattern string, a *reply) {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	mediaType := a.header.Get("Content-Type")
	method, path, routed := strings.Cut(pattern, " ")
	if !routed || a.code() == codeMethod { // no route, but a problem all the same
		if a.status < 400 || mediaType != problemContentType {
			t.Errorf("no route, and answered %d %s", a.status, mediaType)
		}
		validate(t, schemaAt(t, "components", "schemas", "Problem"), a)
		return
	}
	response := at(doc["paths"], path, strings.ToLower(method), "responses", fmt.Sprint(a.status))
	if response == nil {
		t.Errorf("%s answers %d, which the contract does not have: %s", pattern, a.status, a.text)
		return
	}
	if at(response, "content") == nil {
		if a.text != "" {
			t.Errorf("%s answers %d with a body: %s", pattern, a.status, a.text)
		}
		return
	}
	if at(response, "content", mediaType) == nil {
		t.Errorf("%s answers %d with %s, which the contract does not have", pattern, a.status, mediaType)
		return
	}
	if mediaType == "application/yaml" {
		return
	}
	if ref, is := doc["paths"].(map[string]any)[path].(map[string]any)[strings.ToLower(method)].(map[string]any)["responses"].(map[string]any)[fmt.Sprint(a.status)].(map[string]any)["$ref"].(string); is {
		place := append(strings.Split(strings.TrimPrefix(ref, "#/"), "/"), "content", mediaType, "schema")
		validate(t, schemaAt(t, place...), a)
		return
	}
	validate(t, schemaAt(t, "paths", path, strings.ToLower(method), "responses", fmt.Sprint(a.status), "content", mediaType, "schema"), a)
}

func validate(t *testing.T, s *jsonschema.Schema, a *reply) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(a.text))
	if err != nil {
		t.Errorf("not JSON: %v\n%s", err, a.text)
		return
	}
	if err := s.Validate(value); err != nil {
		t.Errorf("against the contract: %v\n%s", err, a.text)
	}
}

// Every route is a path of the contract, and every path is a route.
func TestContractHasTheRoutes(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for path, operations := range doc["paths"].(map[string]any) {
		for method := range operations.(map[string]any) {
			if method != "parameters" { // of all operations
				want = append(want, strings.ToUpper(method)+" "+path)
			}
		}
	}
	have = append(have, "GET /openapi.yaml")
	for pattern := range newWorld(t).gateway.handlers() {
		have = append(have, pattern)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("routes\n%q\npaths\n%q", have, want)
	}
	w := newWorld(t)
	for _, pattern := range have {
		method, path, _ := strings.Cut(pattern, " ")
		req, _ := http.NewRequest(method, strings.ReplaceAll(path, "{receipt}", "x"), nil)
		if _, got := w.gateway.mux.Handler(req); got != pattern {
			t.Errorf("%s %s goes to %q", method, path, got)
		}
	}
	if got := w.do(request{method: "GET", path: "/openapi.yaml"}); got.status != http.StatusOK || got.text != string(Contract()) {
		t.Errorf("the contract is answered %d", got.status)
	}
}

// Whatever is asked, a gateway may be busy: the contract says so of every operation, those that
// need no key among them.
func TestEveryOperationMayBeBusy(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *Options) { o.Limits.Requests = 1 })
	w.gateway.requests <- struct{}{} // as one that is under way
	parameter := regexp.MustCompile(`\{[a-z]+\}`)
	for path, operations := range doc["paths"].(map[string]any) {
		for method := range operations.(map[string]any) {
			if method == "parameters" { // of all operations
				continue
			}
			if got := w.do(request{method: strings.ToUpper(method), path: parameter.ReplaceAllString(path, "x")}); got.code() != codeBusy {
				t.Errorf("%s %s is answered %d %s", method, path, got.status, got.text)
			}
		}
	}
}

// Every example of the contract fits its schema, and every schema can be compiled.
func TestContractExamples(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	var walk func(v any, place []string)
	walk = func(v any, place []string) {
		m, is := v.(map[string]any)
		if !is {
			return
		}
		if m["schema"] != nil && len(place) > 1 {
			s := schemaAt(t, append(slices.Clone(place), "schema")...)
			named, _ := m["examples"].(map[string]any)
			for name, e := range named {
				examples++
				if err := s.Validate(e.(map[string]any)["value"]); err != nil {
					t.Errorf("example %s at %q: %v", name, place, err)
				}
			}
		}
		for name, inner := range m {
			if name != "schema" && name != "examples" {
				walk(inner, append(slices.Clone(place), name))
			}
		}
	}
	walk(doc["paths"], []string{"paths"})
	walk(doc["components"].(map[string]any)["responses"], []string{"components", "responses"})
	if examples < 8 {
		t.Errorf("found %d examples", examples)
	}
}

// The contract's examples of messages are accepted, so that they can be copied.
func TestContractExamplesAreAccepted(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *Options) {
		o.Lanes = append(o.Lanes, Lane{"critical", "push.critical", "critical", AtLeastOnce})
	})
	bodies := at(doc["paths"], "/v1/messages", "post", "requestBody", "content", "application/json", "examples").(map[string]any)
	for name, e := range bodies {
		text, err := json.Marshal(e.(map[string]any)["value"])
		if err != nil {
			t.Fatal(err)
		}
		if got := w.post(string(text)); got.status != http.StatusAccepted {
			t.Errorf("%s: %d %s", name, got.status, got.text)
		}
	}
}

// The codes of problems stand in docs/gateway.md, and no others.
func TestCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| <a id=\"([a-zA-Z_]+)\"></a>`([a-zA-Z_]+)` \\| ([0-9]{3}) ").FindAllStringSubmatch(string(text), -1) {
		if m[1] != m[2] {
			t.Errorf("the anchor of %s is %s", m[2], m[1])
		}
		documented[m[2]] = true
		if k, is := kinds[m[2]]; !is || fmt.Sprint(k.status) != m[3] {
			t.Errorf("docs/gateway.md has the code %s with status %s", m[2], m[3])
		}
	}
	for code := range kinds {
		if !documented[code] {
			t.Errorf("docs/gateway.md lacks the code %s", code)
		}
	}
}
