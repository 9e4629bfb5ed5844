# Sourced by the scripts in this folder. Sets the folders, the version and the architectures.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
export CARGO_TARGET_DIR=$target
# What is shipped, and what is needed for it.
out=${KEYLANE_PACKAGES:-$target/packages}
work=$target/packages-work
tools=$target/tools
mkdir -p "$out" "$work" "$tools"

version=$(sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Of the binaries; each has a package of each kind.
read -ra architectures <<< "${KEYLANE_ARCHITECTURES:-x86_64 aarch64}"
features=kafka-tls

# All files have the time of the last commit, so that a second build makes the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# Name of an architecture in Debian packages and container images.
debian_name() {
  case $1 in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) echo "there is no package for $1; KEYLANE_ARCHITECTURES can have x86_64 and aarch64" >&2; return 2 ;;
  esac
}

# Whether binaries of an architecture run on this machine.
is_native() { [[ $(uname -m) == "$1" ]]; }

as_root() {
  if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo --preserve-env=SOURCE_DATE_EPOCH "$@"; fi
}
