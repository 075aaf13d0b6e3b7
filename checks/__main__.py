"""`python -m checks`: proves the numbers of a deployment before there is one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from checks import app_settings, parity, settings
from checks.bicep.evaluate import TemplateError
from checks.bicep.syntax import BicepSyntaxError
from checks.compiler import CompilerError
from checks.facts import FactError
from checks.sources import read

ROOT = Path(__file__).resolve().parents[1]
FAILED, USAGE = 1, 2


def main(arguments: list[str]) -> int:
    """Print every relation and the parity report; 1 when one is violated, 2 when a file can't be read."""
    parser = argparse.ArgumentParser(prog="python -m checks", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the project to check")
    parser.add_argument("--no-compiler", action="store_true", help="read Bicep with the own parser only")
    options = parser.parse_args(arguments)
    try:
        sources = read(options.root, use_compiler=not options.no_compiler)
        findings = settings.check(sources)
        findings += app_settings.check(sources.azure, sources.local)
        findings += parity.complete(sources.azure)
        findings += parity.complete(sources.local)
        findings += parity.unexplained(sources.azure, sources.local)
    except (FactError, TemplateError, BicepSyntaxError, CompilerError) as error:
        sys.stderr.write(f"checks: {error}\n")
        return USAGE
    lines = [f"infra/ read by {sources.read_by}", "", *map(str, findings), "", "What differs between Azure and local:"]
    lines += parity.report(sources.azure, sources.local)
    violated = [finding for finding in findings if not finding.holds]
    lines += ["", f"{len(findings)} relations, {len(violated)} violated", *map(str, violated)]
    sys.stdout.write("\n".join(lines) + "\n")
    return FAILED if violated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
