#!/usr/bin/env python3
"""Writes the licences of all libraries in the static binaries, as their packages have them, to standard output.

packages/third-party.py FEATURES MUSL TRIPLE... MUSL is the file with the licence of the C library. Each library is named
with its version; a text that several have is written once. Libraries whose package has no text are listed first.
"""

import json
import subprocess
import sys
from pathlib import Path

# Names of files with licences, without their ends.
NAMES = ("licen", "copying", "copyright", "notice", "unlicense")
# Folders of C libraries inside of crates.
INNER = {
    "libz-sys": ["src/zlib"],
    "openssl-src": ["openssl"],
    "rdkafka-sys": ["librdkafka"],
    "zstd-sys": ["zstd"],
}


def packages(features, triples):
    """Packages in the binaries, without those that only build them."""
    found = {}
    for triple in triples:
        command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", triple]
        command += ["--manifest-path", "crates/keylane-cli/Cargo.toml", "--features", features]
        data = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        by_id = {package["id"]: package for package in data["packages"]}
        nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
        waiting = [data["resolve"]["root"]]
        seen = set(waiting)
        while waiting:
            package = by_id[waiting.pop()]
            found[package["name"], package["version"]] = package
            for dependency in nodes[package["id"]]["deps"]:
                kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
                # The sources of OpenSSL are a dependency of a build script.
                is_linked = None in kinds or by_id[dependency["pkg"]]["name"] == "openssl-src"
                if is_linked and dependency["pkg"] not in seen:
                    seen.add(dependency["pkg"])
                    waiting.append(dependency["pkg"])
    return [found[key] for key in sorted(found)]


def texts(package):
    """Licence texts of a package and of the C library in it."""
    folder = Path(package["manifest_path"]).parent
    files = []
    for inner in [".", *INNER.get(package["name"], [])]:
        if (folder / inner).is_dir():
            files += sorted(path for path in (folder / inner).iterdir() if path.name.lower().startswith(NAMES))
    named = package["license_file"]
    if named and folder / named not in files:
        files.append(folder / named)
    for path in files:
        if path.is_dir():
            files += sorted(path.iterdir())
    return [path.read_text(errors="replace").strip() for path in files if path.is_file()]


def main():
    features, musl, *triples = sys.argv[1:]
    users = {Path(musl).read_text().strip(): ["musl"]}
    missing = []
    for package in packages(features, triples):
        if package["source"] is None:
            continue
        name = f"{package['name']} {package['version']} ({package['license']})"
        found = texts(package)
        if not found:
            missing.append(name)
        for text in found:
            users.setdefault(text, []).append(name)
    print("Licences of the libraries that the command keylane is linked with.")
    if missing:
        print("\nThese name their licence and have no text of their own; the text is below, with other libraries:")
        print("\n".join(f"  {name}" for name in missing))
    for text, names in sorted(users.items(), key=lambda item: item[1]):
        print("\n" + "=" * 78)
        print("\n".join(dict.fromkeys(names)))
        print("-" * 78)
        print(text)


if __name__ == "__main__":
    main()
