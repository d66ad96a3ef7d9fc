#!/usr/bin/env bash
# Runs the tests that are not built with the race detector, by the build tag !race
# of their files: go test -race does not see them. Arguments are flags of go test;
# $PKG narrows the packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

files=$(grep -rlxE --include='*_test.go' '//go:build !race' . | LC_ALL=C sort || true)
# shellcheck disable=SC2086 # PKG may be several
chosen=$(go list -f '{{.Dir}}' ${PKG:-./...})
declare -A packages=()
tests=
for file in $files; do
  dir=$PWD/$(dirname "${file#./}")
  grep -qxF -- "$dir" <<<"$chosen" || continue
  packages[$dir]=1
  for name in $(sed -nE 's/^func (Test[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do tests+="|$name"; done
done
[ "${#packages[@]}" = 0 ] || exec go test -run "^(${tests#|})\$" "$@" "${!packages[@]}"
