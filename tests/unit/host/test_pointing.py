"""The app's settings end at this stack or nowhere."""

from __future__ import annotations

import pytest

from local.config_errors import ConfigError
from local.pointing import bus, database, pointed

OURS = (bus("own bus"), database("own database"))
REAL_BUS = "Endpoint=sb://real.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=v"
REAL_DATABASE = "AccountEndpoint=https://real.documents.azure.com:443/;AccountKey=eA=="
BUS = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true;"
DATABASE = "AccountEndpoint=http://localhost:8081/;AccountKey=eA==;"


@pytest.mark.parametrize(
    ("value", "own"),
    [
        (BUS, "own bus"),
        ("UseDevelopmentEmulator=true;Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=v", "own bus"),
        ("endpoint = sb://host.docker.internal; usedevelopmentemulator = TRUE", "own bus"),
        (DATABASE, "own database"),
        ("AccountKey=eA==;AccountEndpoint=https://127.0.0.1:8081", "own database"),
        ("AccountEndpoint=http://[::1]:8081/;AccountKey=eA==", "own database"),
    ],
)
def test_an_emulator_s_connection_becomes_this_stack_s(value: str, own: str) -> None:
    assert pointed({"C": value}, {}, {}, OURS) == {"C": own}
    assert pointed({"C": value}, {"C": value}, {}, OURS) == {"C": own}
    assert pointed({}, {}, {"C": value}, OURS) == {"C": own}


@pytest.mark.parametrize(
    "value",
    [REAL_BUS, REAL_DATABASE, "AccountEndpoint=http://localhost.evil.example:8081/;AccountKey=eA==;"],
)
def test_a_connection_that_ends_elsewhere_is_refused_where_it_stands(value: str) -> None:
    with pytest.raises(ConfigError, match=r"local\.settings\.json: Values\.C: names an account"):
        pointed({"C": value}, {}, {}, OURS)
    for ours in (BUS, DATABASE, "anything"):
        with pytest.raises(ConfigError, match="environment: C: names an account"):
            pointed({"C": ours}, {"C": value}, {}, OURS)


@pytest.mark.parametrize("part", ["C__fullyQualifiedNamespace", "C__accountEndpoint"])
def test_an_identity_s_connection_is_refused_where_it_stands(part: str) -> None:
    with pytest.raises(ConfigError, match=rf"local\.settings\.json: Values\.{part}: names an account"):
        pointed({part: "https://real"}, {}, {}, OURS)
    with pytest.raises(ConfigError, match=f"environment: {part}: names an account"):
        pointed({"C": BUS}, {part: "https://real"}, {}, OURS)
    assert pointed({"C": BUS, part: ""}, {}, {}, OURS)["C"] == "own bus"


def test_an_environment_that_takes_a_connection_away_is_refused() -> None:
    with pytest.raises(ConfigError, match="environment: C: takes the place of a connection string"):
        pointed({"C": BUS}, {"C": ""}, {}, OURS)


def test_what_is_no_connection_is_overridden_as_usual() -> None:
    merged = pointed({"A": "file", "B": "file", "C": "file"}, {"B": "environment", "X": REAL_BUS}, {"C": "own"}, OURS)
    assert merged == {"A": "file", "B": "environment", "C": "own", "X": REAL_BUS}
