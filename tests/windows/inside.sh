#!/bin/sh
# Runs a command where the Windows Python is, which set_up.sh has made:
#     sh tests/windows/inside.sh python -m pytest tests/protocol
# `python` is the Windows Python with this checkout's `touchline`; anything else is run by a shell
# of the Linux that Wine is in. Whatever a command leaves running ends with it.
set -eu
project="$(cd "$(dirname "$0")/../.." && pwd)"
box="${TOUCHLINE_WINDOWS:-$project/build/windows}"
box="$(cd "$box" && pwd)"
export TOUCHLINE_WINDOWS="$box" PROJECT="$project"

if [ "${1:-}" != --entered ]; then
    # One at a time: two Wine servers must not write one registry. Mounts and processes go with the
    # namespace.
    exec flock "$box" unshare --mount --pid --fork --kill-child sh "$0" --entered "$@"
fi
shift
root="$box/debian"
mkdir -p "$root$project" "$root$box"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$project" "$root$project"
mount --bind "$box" "$root$box"
# The recordings from Unity, where they are here (tests/conftest.py).
shared="${TOUCHLINE_SHARED:-$project/../shared}"
if [ -d "$shared" ]; then
    shared="$(cd "$shared" && pwd)"
    mkdir -p "$root$shared"
    mount --bind "$shared" "$root$shared"
else
    shared=
fi
# They may be those of a proxy.
certificates="${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}"
cp "$certificates" "$root/etc/ssl/certs/touchline.crt"
# An environment of its own: paths of this Linux would mislead Windows programs.
exec chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 DISPLAY=:7 \
    PROJECT="$project" TOUCHLINE_WINDOWS="$box" PYTHONPATH="Z:$project/src" \
    ${shared:+TOUCHLINE_SHARED="Z:$shared"} \
    WINEPREFIX="$box/prefix" WINEARCH=win64 WINEDEBUG=-all WINEDLLOVERRIDES="ucrtbase=n,b;winedbg.exe=d" \
    PIP_CERT='Z:\etc\ssl\certs\touchline.crt' SSL_CERT_FILE='Z:\etc\ssl\certs\touchline.crt' \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USE_DEPRECATED=legacy-certs PYTHONDONTWRITEBYTECODE=1 \
    sh "$project/tests/windows/run.sh" "$@"
