#!/usr/bin/env python3
"""Packs static binaries into a container image for several architectures: an archive of an OCI image layout.

packages/image.py VERSION CERTIFICATES LICENCES ARCHIVE amd64=BINARY [arm64=BINARY]...

The image has the command, certificates of public authorities, the licences in the folder LICENCES, and a user without rights; no shell and no libraries.
All times are SOURCE_DATE_EPOCH, so that the same binaries make the same image.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path

USER = 7420
FOLDERS = """
dev etc etc/keylane etc/ssl etc/ssl/certs usr usr/bin usr/share usr/share/doc usr/share/doc/keylane var var/lib
""".split()
NOW = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
CREATED = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW))


def add(archive, path, data=None, mode=0o644, user=0):
    """Adds a file, or a folder if there is no data."""
    entry = tarfile.TarInfo(path)
    entry.mtime, entry.mode, entry.uid, entry.gid = NOW, mode, user, user
    if data is None:
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    else:
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


def layer(binary, certificates, licences):
    """Returns the one layer of an image, as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for folder in FOLDERS:
            add(archive, folder, mode=0o755)
        add(archive, "proc", mode=0o555)
        add(archive, "tmp", mode=0o1777)
        add(archive, "var/lib/keylane", mode=0o700, user=USER)
        users = ["root:x:0:0:root:/:/sbin/nologin", f"keylane:x:{USER}:{USER}::/var/lib/keylane:/sbin/nologin"]
        add(archive, "etc/passwd", "".join(f"{user}\n" for user in users).encode())
        add(archive, "etc/group", f"root:x:0:\nkeylane:x:{USER}:\n".encode())
        add(archive, "etc/ssl/certs/ca-certificates.crt", certificates)
        add(archive, "usr/bin/keylane", binary, mode=0o755)
        for path in sorted(Path(licences).iterdir()):
            add(archive, f"usr/share/doc/keylane/{path.name}", path.read_bytes())
    return buffer.getvalue()


class Layout:
    """Files of an OCI image layout."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}

    def blob(self, data, media_type):
        """Adds a blob and returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def document(self, content, kind):
        data = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
        return self.blob(data, f"application/vnd.oci.image.{kind}.v1+json")

    def write(self, path):
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
            for folder in ["blobs", "blobs/sha256"]:
                add(archive, folder, mode=0o755)
            for name, data in sorted(self.files.items()):
                add(archive, name, data)


def manifest(layout, version, architecture, *content):
    """Adds an image for one architecture, with this content of its layer, and returns its descriptor."""
    files = layer(*content)
    labels = {
        "org.opencontainers.image.title": "keylane",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
    }
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/keylane"],
            "Cmd": ["serve", "--config", "/etc/keylane/keylane.toml"],
            "Env": ["PATH=/usr/bin", "HOME=/var/lib/keylane"],
            "WorkingDir": "/var/lib/keylane",
            "ExposedPorts": {"7420/tcp": {}},
            "Volumes": {"/var/lib/keylane": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        "history": [{"created": CREATED, "created_by": "packages/image.py"}],
    }
    image = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": layout.document(config, "config"),
        "layers": [
            layout.blob(gzip.compress(files, mtime=NOW), "application/vnd.oci.image.layer.v1.tar+gzip"),
        ],
        "annotations": labels,
    }
    return layout.document(image, "manifest") | {"platform": {"architecture": architecture, "os": "linux"}}


def main():
    version, certificates, licences, archive, *binaries = sys.argv[1:]
    layout = Layout()
    images = []
    for named in binaries:
        architecture, _, path = named.partition("=")
        files = Path(path).read_bytes(), Path(certificates).read_bytes(), licences
        images.append(manifest(layout, version, architecture, *files))
    content = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": images}
    index = layout.document(content, "index")
    index["annotations"] = {"org.opencontainers.image.ref.name": version}
    top = {"schemaVersion": 2, "manifests": [index]}
    layout.files["index.json"] = json.dumps(top, separators=(",", ":"), sort_keys=True).encode()
    layout.write(archive)


if __name__ == "__main__":
    main()
