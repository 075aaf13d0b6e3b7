"""Settings of the property tests: a busy machine is no finding."""

from hypothesis import HealthCheck, settings

settings.register_profile("domain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("domain")
