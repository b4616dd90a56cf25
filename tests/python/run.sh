#!/usr/bin/env bash
# The Python package as the workspace's debug build has it: tests, notebooks, the cells of the
# book, types. `tools/python-wheel.sh` makes and tries the release wheel.
set -euo pipefail
cd "$(dirname "$0")/../.."
target="${CARGO_TARGET_DIR:-target}"
target="$(mkdir -p "$target" && cd "$target" && pwd)"
venv="$target/python"

# With the whole workspace, so that every crate is compiled once, with the same features.
cargo build --workspace --quiet
package="$target/python-package"
rm -rf "$package" && mkdir -p "$package"
cp -r python/fatflow "$package/"
cp "$target/debug/lib_native.so" "$package/fatflow/_native.abi3.so"

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/python/requirements.txt
[ -x "$target/pyright/node_modules/.bin/pyright" ] ||
    npm install --silent --no-audit --no-fund --prefix "$target/pyright" pyright@1.1.414

export FATFLOW="$target/debug/fatflow" PYTHONPATH="$package" PYTHONDONTWRITEBYTECODE=1
python3 tools/python-results.py --check
"$venv/bin/python" -m pytest -q -p no:cacheprovider tests/python "$@"
# Types: of the package as it is written, and of somebody who uses it.
(
    cd "$package"
    checked=(fatflow "$OLDPWD/tests/python/typed.py")
    "$venv/bin/mypy" --strict --python-version 3.10 --cache-dir "$target/mypy" "${checked[@]}"
    "$target/pyright/node_modules/.bin/pyright" --pythonpath "$venv/bin/python" "${checked[@]}"
)
