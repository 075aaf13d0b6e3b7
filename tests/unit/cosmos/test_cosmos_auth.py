"""Master key signatures, as the SDK makes them."""

from __future__ import annotations

from email.utils import formatdate
from urllib.parse import quote

import pytest

from local.cosmos import auth
from local.cosmos.errors import CosmosError

NOW = 1_800_000_000.0
KEY = auth.decoded_key("C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==")


def signed(kind: str, link: str, *, at: float = NOW, verb: str = "get") -> dict[str, str]:
    date = formatdate(at, usegmt=True)
    token = f"type=master&ver=1.0&sig={auth.signature(KEY, verb, kind, link, date)}"
    return {"x-ms-date": date, "authorization": quote(token)}


@pytest.mark.parametrize(
    ("path", "kind", "link"),
    [
        ("", "", ""),
        ("dbs", "dbs", ""),
        ("dbs/Convoy", "dbs", "dbs/Convoy"),
        ("dbs/Convoy/colls", "colls", "dbs/Convoy"),
        ("dbs/c/colls/o/docs", "docs", "dbs/c/colls/o"),
        ("dbs/c/colls/o/docs/a b", "docs", "dbs/c/colls/o/docs/a b"),
        ("dbs/AbC=/colls/DeF=/docs/GhI=", "docs", "ghi="),
        ("dbs/c/colls/o/operations/partitionkeydelete", "colls", "dbs/c/colls/o"),
        ("offers/AbCd", "offers", "abcd"),
    ],
)
def test_signature_over_the_link_by_name_or_the_last_resource_id(path: str, kind: str, link: str) -> None:
    auth.check(KEY, "GET", path.split("/") if path else [], signed(kind, link), NOW)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "type=aad&ver=1.0&sig=x", "x-ms-date": formatdate(NOW, usegmt=True)},
        signed("dbs", "dbs/other"),
        signed("dbs", "dbs/convoy", verb="delete"),
        {**signed("dbs", "dbs/convoy"), "x-ms-date": formatdate(NOW + 1, usegmt=True)},
    ],
)
def test_wrong_or_missing_signature_is_401(headers: dict[str, str]) -> None:
    with pytest.raises(CosmosError) as refused:
        auth.check(KEY, "GET", ["dbs", "convoy"], headers, NOW)
    assert refused.value.status == 401


@pytest.mark.parametrize(("skew", "is_good"), [(899, True), (-899, True), (901, False), (-901, False)])
def test_date_more_than_15_minutes_off_is_403(skew: float, is_good: bool) -> None:
    headers = signed("dbs", "dbs/convoy", at=NOW + skew)
    if is_good:
        auth.check(KEY, "GET", ["dbs", "convoy"], headers, NOW)
        return
    with pytest.raises(CosmosError, match="not valid at the current time") as refused:
        auth.check(KEY, "GET", ["dbs", "convoy"], headers, NOW)
    assert refused.value.status == 403


def test_key_that_is_no_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="no base64"):
        auth.decoded_key("not a key")
