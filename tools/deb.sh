#!/bin/sh
# Makes a Debian package of fatflow in DIR (default: target): a static binary, completions for
# three shells, a manual page for each command, the presets' licence. Needs dpkg-deb and nothing else.
#   tools/deb.sh [DIR]
# FATFLOW_BINARY names a binary that is there already, to be packed as it is;
# FATFLOW_DEB_COMPRESSOR another compressor than xz.
set -eu
cd "$(dirname "$0")/.."
out=${1:-target}
target=x86_64-unknown-linux-gnu
if [ -z "${FATFLOW_BINARY:-}" ]; then
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked -p cli --target $target
    FATFLOW_BINARY=${CARGO_TARGET_DIR:-target}/$target/release/fatflow
fi
version=$("$FATFLOW_BINARY" --version | cut -d' ' -f2)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install -Dm755 "$FATFLOW_BINARY" "$root/usr/bin/fatflow"
"$FATFLOW_BINARY" completions bash | install -Dm644 /dev/stdin "$root/usr/share/bash-completion/completions/fatflow"
"$FATFLOW_BINARY" completions zsh | install -Dm644 /dev/stdin "$root/usr/share/zsh/vendor-completions/_fatflow"
"$FATFLOW_BINARY" completions fish | install -Dm644 /dev/stdin "$root/usr/share/fish/vendor_completions.d/fatflow.fish"
man=$root/usr/share/man/man1
mkdir -p "$man"
"$FATFLOW_BINARY" man | gzip -9n > "$man/fatflow.1.gz"
for command in $("$FATFLOW_BINARY" help | sed -n '/^Commands:/,/^Options:/s/^  \([a-z][a-z]*\) .*/\1/p' | grep -v '^help$'); do
    "$FATFLOW_BINARY" man $command | gzip -9n > "$man/fatflow-$command.1.gz"
done
install -Dm644 LICENSE "$root/usr/share/doc/fatflow/copyright"
mkdir -p "$root/DEBIAN"
cat > "$root/DEBIAN/control" <<CONTROL
Package: fatflow
Version: $version
Architecture: amd64
Maintainer: The fatflow developers <fatflow@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Section: net
Priority: optional
Description: predicts the scale-out traffic of LLM training and what it costs
 What traffic a training job puts on a RoCE, InfiniBand or Ultra Ethernet
 fabric, what the fabric does with it, and what that costs the job.
CONTROL
chmod -R go=rX "$root"
chmod -R u+w "$root"
mkdir -p "$out"
dpkg-deb --root-owner-group -Z"${FATFLOW_DEB_COMPRESSOR:-xz}" --build "$root" "$out/fatflow_${version}_amd64.deb" > /dev/null
echo "$out/fatflow_${version}_amd64.deb"
