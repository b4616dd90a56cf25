"""check.py FATFLOW FOLDER: the manifest for Kubernetes, held against Kubernetes' own schemas.

The schemas miss what is decided later (a misspelt completion mode, a restart policy that Jobs
refuse, a volume that nothing declares), so that is asserted here, and the pods' own command is run
for every index on a folder that stands in for the volume.
"""

import json
import pathlib
import subprocess
import sys

import kubernetes_validate
import yaml

FATFLOW, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
# From the first version that has what the Job uses to the last that the package knows.
VERSIONS = ["1.29", "1.30", "1.31", "1.32", "1.33", "1.37"]
SHARDS = 3

GRID = """\
from = "small-128"
engine = "analytic"

[axes]
"network.routing.qps" = [1, 2, 4, 8]
seed = { from = 0, to = 4 }

[keep]
measures = ["step_s", "mfu"]
"""


def fatflow(*arguments):
    command = [str(FATFLOW), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def refused(*arguments):
    done = subprocess.run([str(FATFLOW), *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stderr


def run_pods(container, volumes):
    """What the pods would do, with folders for their volumes."""
    places = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    for index in range(SHARDS):
        arguments = []
        for argument in container["args"]:
            argument = argument.replace("$(JOB_COMPLETION_INDEX)", str(index))
            for place, folder in places.items():
                if argument.startswith(place + "/"):
                    argument = str(folder) + argument[len(place) :]
            arguments.append(argument)
        fatflow(*arguments)


def main():
    FOLDER.mkdir()
    grid = FOLDER / "grid.toml"
    grid.write_text(GRID)
    flags = ["--image", "registry.example/fatflow:1", "--volume-claim", "scratch"]
    text = fatflow("sweep", "manifest", "kubernetes", *flags, "--shards", SHARDS, grid)
    config, job = yaml.safe_load_all(text)
    for version in VERSIONS:
        for document in (config, job):
            kubernetes_validate.validate(document, version, strict=True)
    assert config["data"]["grid.toml"] == GRID, config

    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == SHARDS and spec["backoffLimitPerIndex"] > 0
    assert pod["restartPolicy"] == "Never", "a Job with a podFailurePolicy must not restart pods"
    (container,) = pod["containers"]
    rules = spec["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["containerName"] == container["name"]
    assert {rule["action"] for rule in rules} == {"FailIndex", "Ignore"}
    declared = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(declared)
    assert declared["grid"]["configMap"]["name"] == config["metadata"]["name"]
    assert declared["sweep"]["persistentVolumeClaim"]["claimName"] == "scratch"
    memory = container["resources"]["requests"]["memory"]
    assert memory.endswith("Mi") and int(memory[:-2]) > 0
    assert container["resources"]["limits"]["memory"] == memory

    volume = FOLDER / "volume"
    volume.mkdir()
    run_pods(container, {"sweep": volume, "grid": FOLDER})
    (out,) = volume.iterdir()
    fatflow("sweep", "merge", out)
    fatflow("sweep", "run", grid, "--out", FOLDER / "local")
    fatflow("sweep", "merge", FOLDER / "local")
    shown = json.loads(fatflow("sweep", "show", out, "--json"))["result"]
    assert (shown["done"], shown["failed"], shown["duplicates"]) == (20, 0, 0), shown
    here, there = (folder / "results.parquet" for folder in (FOLDER / "local", out))
    assert here.read_bytes() == there.read_bytes(), "pods and a local run differ"

    for flags in (["--image", "a b"], ["--volume-claim", "Not_A_Name"], ["--name", "UPPER"]):
        code, said = refused("sweep", "manifest", "kubernetes", *flags, grid)
        assert code == 2 and flags[1] in said, (code, said)


main()
