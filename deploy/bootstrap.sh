#!/usr/bin/env bash
# Set-up, as the first step of every make target: virtual environment, locked dependencies, Java 17+, JVM jars.
# Fast when all is there; safe to run again after it was interrupted. `deploy/bootstrap.sh tests` adds what tests need,
# `deploy/bootstrap.sh s3` what Spark's checkpoints on S3 need (13 MB); `deploy/bootstrap.sh docs` is about the documentation's site alone, without Java.
# `deploy/bootstrap.sh helm` builds Helm for `make chart` and the tests of the chart, by Go: minutes of CPU, so only where asked for.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

lists_are_new= # apt's lists of packages are fetched once in a run, for they can take a minute
apt_install() {
  # $1 what it is for, then packages. Only as root and where apt is; else one line that says what to install.
  local purpose=$1; shift
  # Another clone may have installed them: apt would fetch its lists for nothing, which takes up to minutes.
  if command -v dpkg >/dev/null && dpkg -s "$@" >/dev/null 2>&1; then return 0; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing $* ($purpose)"
    # Debian starts services when it installs them; nothing of ours may listen, so forbid that for this install.
    local policy=/usr/sbin/policy-rc.d made=
    [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; made=1; }
    { { [ -n "$lists_are_new" ] || apt-get update -qq; } && lists_are_new=1 \
      && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null \
      || { [ -z "$made" ] || rm -f $policy; return 1; }
    [ -z "$made" ] || rm -f $policy
  else
    return 1
  fi
}

tried_today() {
  # $1 names what to install. Where packages can't be reached, apt takes a minute to fail: once a day will do.
  local tried=.venv/$1-tried
  [ -n "$(find "$tried" -mmin -1440 2>/dev/null)" ] || { touch "$tried"; return 1; }
}

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "Python 3.11 or newer is needed: install python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed, found $("$python" -V)"

if ! .venv/bin/python -c 'pass' 2>/dev/null; then
  say "virtual environment in .venv"
  rm -rf .venv
  "$python" -m venv .venv 2>/dev/null || { apt_install "virtual environments" python3-venv && "$python" -m venv .venv; } \
    || fail "virtual environments are missing: install python3-venv"
fi

wanted=$(cat requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1)
if [ "$(cat .venv/installed 2>/dev/null)" != "$wanted" ]; then
  say "dependencies of requirements.lock (pyspark is large: this takes a minute or two)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --editable .
  echo "$wanted" > .venv/installed
fi

install_wheels() { .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: "$@"; }

# The planner's machine code, which the first plan would compile for half a minute. numba keeps it until its source changes.
.venv/bin/python -m assignor_core.planner

if [ "${1:-}" = helm ]; then
  tools=${XDG_CACHE_HOME:-$HOME/.cache}/kafka-load-rebalancer/bin
  command -v helm >/dev/null || [ -x "$tools/helm" ] || {
    command -v go >/dev/null || fail "Go is needed to build Helm: install golang, or put helm on the path"
    say "Helm (charts; this takes minutes)"
    # As in its makers' build, the release of Kubernetes that charts are rendered for by default.
    kubernetes='-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34'
    GOBIN=$tools GOFLAGS=-modcacherw go install -ldflags "-s -w $kubernetes" helm.sh/helm/v3/cmd/helm@v3.19.0 || fail "Helm can't be built"
  }
  exit 0
fi

if [ "${1:-}" = tests ] && ! .venv/bin/python -c 'import botocore' 2>/dev/null; then
  say "botocore (tests of logins by AWS MSK IAM)"
  install_wheels --no-deps -r deploy/extras/msk.lock \
    || say "botocore is not installed: the tests of AWS MSK IAM will be skipped"
fi

if { [ "${1:-}" = docs ] || [ "${1:-}" = tests ]; } && ! .venv/bin/python -c 'import material' 2>/dev/null; then
  say "mkdocs-material (the documentation as a site)"
  install_wheels -r deploy/extras/docs.lock \
    || { [ "$1" = tests ] && say "mkdocs-material is not installed: the tests of the site will be skipped"; } \
    || fail "mkdocs-material can't be installed"
fi
[ "${1:-}" != docs ] || exit 0

if [ "${1:-}" = tests ] && ! .venv/bin/python -c 'import flask_cors, moto' 2>/dev/null; then
  say "moto (tests of tables on S3)"
  install_wheels --no-deps -r deploy/extras/s3-tests.lock \
    || say "moto is not installed: the tests of tables on S3 will be skipped"
fi

if [ "${1:-}" = tests ] && ! .venv/bin/python -c 'import schemathesis' 2>/dev/null; then
  say "schemathesis (tests of the API by its OpenAPI document)"
  install_wheels -r deploy/extras/api-tests.lock \
    || say "schemathesis is not installed: the tests by the OpenAPI document will be skipped"
fi

if [ "${1:-}" = tests ] && ! command -v chromium >/dev/null; then
  if tried_today chromium || ! apt_install "tests of the page in a browser" chromium; then
    say "chromium is not installed: the tests of the page in a browser will be skipped"
  fi
fi

if [ "${1:-}" = tests ] && command -v chromium >/dev/null && ! .venv/bin/python -c 'import axe_playwright_python' 2>/dev/null; then
  say "playwright and axe-core (tests of the page in a browser)"
  install_wheels -r deploy/extras/browser-tests.lock \
    || say "playwright or axe-core is not installed: tests of the page in a browser will be skipped"
fi

java_found() { .venv/bin/python -c 'from streaming.runtime.jars import java_command; java_command()' 2>/dev/null; }
java_found || { apt_install "Java" openjdk-17-jre-headless && java_found; } \
  || fail "Java 17 or newer is needed: install openjdk-17-jre-headless"

.venv/bin/python -m streaming.runtime.jars ${1:+"$1"}
.venv/bin/python -m streaming.demo.class_archive
.venv/bin/python -m streaming.demo.spark_classes # on a broker, so after the archive of theirs

if [ "${1:-}" = tests ] && ! { command -v promtool >/dev/null && command -v amtool >/dev/null; }; then
  if tried_today prometheus || ! apt_install "tests of alert rules" prometheus prometheus-alertmanager; then
    say "prometheus and prometheus-alertmanager are not installed: the tests of alert rules will be skipped"
  fi
fi

kerberos_there() { PATH=$PATH:/usr/sbin command -v krb5kdc >/dev/null && .venv/bin/python -c 'import gssapi' 2>/dev/null; }
if [ "${1:-}" = tests ] && ! kerberos_there; then
  # gssapi has no wheels for Linux: it is built here, by tools with hashes too.
  if tried_today kerberos || ! { apt_install "tests of Kerberos" krb5-kdc krb5-admin-server libkrb5-dev gcc libc6-dev \
    && .venv/bin/python -m pip install --quiet --require-hashes --only-binary :all: \
      -r deploy/extras/kerberos-build.lock \
    && .venv/bin/python -m pip install --quiet --require-hashes --no-build-isolation -r deploy/extras/kerberos.lock; }; then
    say "Kerberos' KDC or gssapi is not installed: the tests of Kerberos will be skipped"
  fi
fi
