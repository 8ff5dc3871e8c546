"""Tests that each container runtime is detected, and reported when a campaign starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.doctor import machine, surroundings
from engine.doctor.tools import MachineCheck
from harness.devices import inventory
from tests.support.engines import campaigns

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12ab.slice/" \
      "cri-containerd-5f3c.scope"
VARIABLES = ("KUBERNETES_SERVICE_HOST", "container", "APPTAINER_CONTAINER", "APPTAINER_NAME",
             "SINGULARITY_CONTAINER", "SINGULARITY_NAME")
MOUNT = "22 1 0:3 {root} {at} rw,relatime - {rest}\n"
SNAPSHOT = "overlay overlay rw,lowerdir=/var/lib/containerd/io.containerd.snapshotter.v1/7/fs"


@pytest.fixture(autouse=True)
def no_container_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def root(folder: Path, cgroup: str = "0::/\n", **files: str) -> Path:
    """Create the root of a file system; in a name `__` stands for a slash and `dot_` for a dot."""
    for name, text in {"proc__self__cgroup": cgroup, **files}.items():
        path = folder / name.replace("__", "/").replace("dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(("files", "kills_processes"), [
    ({}, False), ({"etc__systemd__logind.conf": "yes"}, True),
    ({"etc__systemd__logind.conf": "yes", "run__systemd__logind.conf.d__a.conf": "no"}, False),
    ({"usr__lib__systemd__logind.conf.d__z.conf": "yes",
      "etc__systemd__logind.conf.d__a.conf": "no"}, True),  # z comes last, whatever its folder
    ({"usr__lib__systemd__logind.conf.d__a.conf": "yes",
      "etc__systemd__logind.conf.d__a.conf": "no"}, False)])
def test_kill_user_processes_is_read_from_the_logind_file_with_the_last_name(
        tmp_path: Path, files: dict[str, str], kills_processes: bool) -> None:
    root(tmp_path, **{name: f"[Login]\nKillUserProcesses={text}\n"
                      for name, text in files.items()})
    assert surroundings._kills_by_file(tmp_path) is kills_processes


@pytest.mark.parametrize(("files", "env", "name"), [
    ({}, {}, ""),
    ({"cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n"}, {}, ""),
    ({"cgroup": "0::/system.slice/docker.service\n"}, {}, ""),
    ({"cgroup": "0::/system.slice/containerd.service\n"}, {}, ""),
    ({"dot_dockerenv": ""}, {}, "docker"),
    ({"run__dot_containerenv": ""}, {}, "podman"),
    ({"run__dot_containerenv": 'engine="podman-4.9"\nname="x"\n'}, {}, "podman"),
    ({"run__dot_containerenv": 'engine="cri-o"\n'}, {}, "cri-o"),
    ({"cgroup": f"0::{POD}\n"}, {}, "kubernetes, containerd"),
    ({"cgroup": "5:cpu:/kubepods/burstable/pod12/crio-77aa\n"}, {}, "kubernetes, cri-o"),
    ({"dot_dockerenv": "", "cgroup": "4:memory:/kubepods/pod12/docker/9f\n"}, {},
     "kubernetes, docker"),
    ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
    ({"cgroup": "0::/system.slice/docker-0a1b2c3d4e5f.scope\n"}, {}, "docker"),
    ({"cgroup": "0::/docker/0a1b2c3d4e5f\n"}, {}, "docker"),
    ({"cgroup": "0::/machine.slice/libpod-0a1b2c3d4e5f.scope/container\n"}, {}, "podman"),
    ({"cgroup": "2:cpu:/lxc/mine/ns\n"}, {}, "lxc"),
    ({"proc__self__mountinfo": MOUNT.format(root="/", at="/", rest=SNAPSHOT)}, {}, "containerd"),
    ({"proc__self__mountinfo": MOUNT.format(root="/", at="/mnt/a", rest=SNAPSHOT)}, {}, ""),
    ({"dot_singularity.d__runscript": ""}, {}, "singularity"),
    ({"dot_singularity.d__runscript": ""}, {"APPTAINER_NAME": "a.sif"}, "apptainer"),
    ({}, {"APPTAINER_CONTAINER": "/a.sif"}, "apptainer"),
    ({}, {"SINGULARITY_CONTAINER": "/a.sif"}, "singularity"),
    ({"proc__self__mountinfo": MOUNT.format(root="/data/ubuntu", at="/", rest="ext4 /dev/x rw")
      + MOUNT.format(root="/data/ubuntu/.lock", at="/.lock", rest="ext4 /dev/x rw")}, {}, "enroot"),
    ({"proc__self__mountinfo": MOUNT.format(root="/e/pyxis_77.0", at="/", rest="ext4 /dev/x rw")
      + MOUNT.format(root="/e/pyxis_77.0/.lock", at="/.lock", rest="ext4 /dev/x rw")}, {},
     "enroot, pyxis"),
    ({"dot_lock": "", "proc__self__mountinfo": MOUNT.format(root="/", at="/", rest="ext4 x rw")},
     {}, ""),
    ({}, {"container": "systemd-nspawn"}, "systemd-nspawn"),
    ({"run__systemd__container": "oci\n"}, {}, "oci"),
    ({"run__dot_containerenv": ""}, {"container": "podman"}, "podman"),
])
def test_runtime_is_detected_by_its_marks(
        files: dict[str, str], env: dict[str, str], name: str, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    assert ", ".join(surroundings.containers(root(tmp_path, **files))) == name


def test_campaign_start_logs_the_container(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "containers", lambda: ("kubernetes", "containerd"))
    setup = campaigns.create(tmp_path)
    with campaigns.running(setup), campaigns.reading(setup) as reader:
        [event] = [event for event in reader.events(campaign=setup.id)
                   if event.ref == "container"]
    assert event.kind == "log"  # no warning: a container may be intended
    assert b"in a container (kubernetes, containerd)" in event.payload
    assert b"a campaign ends with the container" in event.payload


def test_limits_are_reported_without_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "containers", lambda: ())
    monkeypatch.setattr(surroundings, "_cpu_limit", lambda: "2.0 cores by quota")
    assert surroundings.container() == MachineCheck("container", "note", "2.0 cores by quota")
    assert [check.name for check in machine.start_notices([inventory.find("cpu")])] == ["container"]
