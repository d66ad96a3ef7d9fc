#!/usr/bin/env bash
# gofmt, go vet, staticcheck and govulncheck over the whole module; vet and
# staticcheck over what is only built with the tags planted and channel, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

deploy/local/format.sh
go vet ./...
go tool staticcheck ./...

for tag in planted channel; do
  # The packages that have such files, so that a new one is not forgotten.
  packages=$(grep -rl --include='*.go' "^//go:build $tag\$" . | xargs -r dirname | sort -u)
  # shellcheck disable=SC2086 # a word for each package
  go vet -tags "$tag" $packages
  # shellcheck disable=SC2086
  go tool staticcheck -tags "$tag" $packages
done

deploy/local/vulnerabilities.sh
