#!/bin/sh
# Makes virtual environments of official ML-Agents 1.1.0 in the project's root, for `make interop`:
#     sh tests/interop/make_official.sh client    .venv-official: mlagents_envs on Python 3.10
#     sh tests/interop/make_official.sh learn     .venv-official-learn: mlagents-learn on Python 3.11
# PYTHON_3_10 and PYTHON_3_11 name the interpreters when they are not on the path or in pyenv.
set -eu
cd "$(dirname "$0")/../.."

python_of() { # version, given
    for candidate in "$2" "python$1" "$(ls -d "$HOME/.pyenv/versions/$1".*/bin/python 2>/dev/null | tail -n 1)"; do
        if [ -n "$candidate" ] && "$candidate" -c "import sys; sys.exit(sys.version_info[:2] != tuple(map(int, '$1'.split('.'))))" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python $1 is needed for official ML-Agents and was not found; name it in PYTHON_$(echo "$1" | tr . _)" >&2
    exit 3
}

case "${1:-}" in
client)
    python="$(python_of 3.10 "${PYTHON_3_10:-}")"
    [ -x .venv-official/bin/python ] || "$python" -m venv .venv-official
    # Newer versions of filelock, of which ml-agents names none, fail on Python 3.10.
    .venv-official/bin/pip install -q --ignore-requires-python mlagents-envs==1.1.0 "filelock<4"
    ;;
learn)
    python="$(python_of 3.11 "${PYTHON_3_11:-}")"
    [ -x .venv-official-learn/bin/python ] || "$python" -m venv .venv-official-learn
    .venv-official-learn/bin/pip install -q "setuptools<80" numpy==1.23.5 protobuf==3.20.3 "cattrs<1.7" pyyaml \
        cloudpickle pillow filelock six tensorboard==2.14.1 "grpcio<1.70" h5py torch==2.13.0 "huggingface_hub<0.26" \
        onnx==1.15.0 ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"}
    .venv-official-learn/bin/pip install -q --no-deps --ignore-requires-python mlagents==1.1.0 mlagents-envs==1.1.0
    ;;
*)
    echo "usage: sh tests/interop/make_official.sh client|learn" >&2
    exit 2
    ;;
esac
