#!/usr/bin/env bash
# Makes an environment with SkyRL's server in the given folder and prints its Python; otherwise says why not, and fails.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
finished=$folder/.finished
if [ ! -e "$finished" ] || [ "$here/requirements.txt" -nt "$finished" ]; then
  for python in python3.12 python3.13 python3 "$HOME"/.pyenv/versions/3.1[23].*/bin/python3; do
    found=$(command -v "$python" || true)
    if [ -n "$found" ] && "$found" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 15))' 2>/dev/null; then
      break
    fi
    found=
  done
  if [ -z "$found" ]; then
    echo "SkyRL 0.4.0 needs Python 3.12 or later, and there is none" >&2
    exit 1
  fi
  "$found" -m venv "$folder" >&2
  install="$folder/bin/python -m pip install --quiet --no-compile --disable-pip-version-check"
  if ! { $install --no-deps skyrl==0.4.0 && $install --requirement "$here/requirements.txt"; } >"$folder/pip.log" 2>&1; then
    echo "SkyRL 0.4.0 cannot be installed: $(grep -m1 '^ERROR' "$folder/pip.log" || tail -1 "$folder/pip.log")" >&2
    exit 1
  fi
  touch "$finished"
fi
echo "$(cd "$folder" && pwd)/bin/python"
