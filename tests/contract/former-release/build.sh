#!/bin/sh
# Builds the programs of the former release, once for each commit, and prints their directory: the
# coordinator, and a simulated host with its agent. Usage: build.sh CACHE, with CARGO_TARGET_DIR.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
commit=$(cat "$here/commit")
root=$(git -C "$here" rev-parse --show-toplevel)
place=$1/former/$commit

if ! [ -e "$place/former-host" ]; then
    if ! git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null; then
        echo "commit $commit, the former release, is not in this clone: git fetch --unshallow origin" >&2
        exit 1
    fi
    echo "building the former release ($commit)…" >&2
    tree=$place/tree
    rm -rf "$place"
    mkdir -p "$tree"
    git -C "$root" archive --output "$place/tree.tar" "$commit"
    tar --extract --file "$place/tree.tar" --directory "$tree"
    rm "$place/tree.tar"
    mkdir "$tree/former-host"
    cp -r "$here/Cargo.toml" "$here/src" "$tree/former-host/"
    sed -i 's/^members = \[/&\n    "former-host",/' "$tree/Cargo.toml"
    cargo build --quiet --manifest-path "$tree/Cargo.toml" --package coordinator --package former-host
    cp "$CARGO_TARGET_DIR/debug/baremetal-coordinator" "$place/"
    # The last: it marks the place as complete.
    cp "$CARGO_TARGET_DIR/debug/former-host" "$place/.former-host"
    mv "$place/.former-host" "$place/former-host"
    rm -rf "$tree"
fi
echo "$place"
