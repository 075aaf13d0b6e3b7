"""`ops settings`: what a command works with, and where each value comes from. Never a secret."""

from __future__ import annotations

import re
from typing import Final

from ops.environment import Setting, Target
from ops.errors import DONE
from ops.output import Output

_SECRET: Final = re.compile(
    r"SharedAccessKey=|AccountKey=|SharedAccessSignature|InstrumentationKey=|sig=|password|://[^/@]+@", re.IGNORECASE
)
_SECRET_NAME: Final = re.compile(r"key|token|secret|password|^AzureWebJobsStorage$|CONNECTION_STRING", re.IGNORECASE)
HIDDEN: Final = "(secret)"


def show_settings(target: Target, out: Output) -> int:
    """List the effective settings; of a secret the name alone."""
    rows = [(name, shown(name, setting), setting.source) for name, setting in sorted(target.values.items())]
    out.table("Settings", ("name", "value", "from"), rows)
    out.line(f"namespace: {target.name}; embedded stack: {'yes' if target.stack else 'no'}")
    out.result(
        {
            "namespace": target.name,
            "stack": target.stack is not None,
            "settings": {name: {"value": value, "from": source} for name, value, source in rows},
        }
    )
    return DONE


def shown(name: str, setting: Setting) -> str:
    """A setting's value, unless it is secret or holds something that is."""
    is_plain = name == "LOG_KEYS"
    is_secret = _SECRET.search(setting.value) is not None or _SECRET_NAME.search(name) is not None
    return HIDDEN if is_secret and not is_plain else setting.value
