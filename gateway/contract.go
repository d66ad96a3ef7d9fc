package gateway

import (
	_ "embed" // the contract is part of the binary
	"net/http"
	"strconv"
)

//go:embed openapi.yaml
var contract []byte

// Contract is the OpenAPI 3.1 document of the gateway.
func Contract() []byte { return contract }

// serveContract answers GET /openapi.yaml, for which no key is needed.
func serveContract(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Length", strconv.Itoa(len(contract)))
	_, _ = w.Write(contract)
}
