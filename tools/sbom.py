#!/usr/bin/env python3
"""Writes what fatflow is built from as CycloneDX 1.5 JSON, from `cargo metadata` and Cargo.lock.

Ends with exit code 1 where deny.toml does not allow a licence, or where something comes from
elsewhere than the registry or without a digest: what cargo-deny looks at too, for machines that
have not compiled it.
"""
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether a licence expression holds with these licences alone."""
    words = re.findall(r"[()]|[^()\s]+(?: WITH [^()\s]+)?", expression)
    joined = {"AND": "and", "OR": "or", "(": "(", ")": ")"}
    return bool(eval(" ".join(joined.get(word, str(word in allowed)) for word in words)))


def problems(packages: list[dict], sums: dict) -> list[str]:
    """What of these packages must not be there."""
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    allowed, found = set(rules["licenses"]["allow"]), []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        licence = (package.get("license") or "").replace("/", " OR ")
        if package["source"] and not (licence and is_allowed(licence, allowed)):
            found.append(f"{name}: deny.toml does not allow its licence: {licence or 'none told'}")
        if package["source"] and not package["source"].startswith("registry+"):
            found.append(f"{name} comes from {package['source']}")
        if package["source"] and not sums.get((package["name"], package["version"])):
            found.append(f"{name} has no digest in Cargo.lock")
    return found


def main() -> None:
    words = ["cargo", "metadata", "--format-version", "1", "--locked"]
    metadata = json.loads(subprocess.run(words, cwd=ROOT, check=True, capture_output=True).stdout)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    packages = {package["id"]: package for package in metadata["packages"]}

    def purl(package: dict) -> str:
        return f"pkg:cargo/{package['name']}@{package['version']}"

    components = []
    for package in sorted(packages.values(), key=purl):
        checksum = sums.get((package["name"], package["version"]))
        component = {
            "type": "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
            "scope": "required" if package["source"] else "optional",
        }
        if package.get("license"):
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    dependencies = [
        {
            "ref": purl(packages[node["id"]]),
            "dependsOn": sorted(purl(packages[other]) for other in node["dependencies"]),
        }
        for node in metadata["resolve"]["nodes"]
    ]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "fatflow", "version": "0.1.0"}},
        "components": components,
        "dependencies": sorted(dependencies, key=lambda entry: entry["ref"]),
    }
    json.dump(bom, sys.stdout, indent=1)
    sys.stdout.write("\n")
    if found := problems(list(packages.values()), sums):
        sys.exit("\n".join(found))


main()
