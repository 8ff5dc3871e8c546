"""`kopt manifest`: check a manifest, or print the schema of manifests."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.manifest.benchmark_target import check_runnable
from engine.manifest.load import dump, load, schema
from harness.errors import InputError
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_json


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", nargs="?", type=Path,
                        help="the manifest file to check")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of manifests")
    parser.add_argument("--full", action="store_true", help="print the manifest with every default")
    parser.epilog = "Every command in a manifest runs by sh -c if it needs a shell, else directly."
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.schema:
        print_json(schema())
        return 0
    if args.manifest is None:
        raise InputError("which manifest?", fix="kopt manifest FILE, or kopt manifest --schema")
    manifest = load(args.manifest)
    if args.json:
        print_json(manifest)
    elif args.full:
        print(dump(manifest), end="")
    check_runnable(manifest)
    if not (args.json or args.full):
        print(f"{args.manifest}: a valid manifest for {manifest.target_op} in {manifest.project}")
    return 0
