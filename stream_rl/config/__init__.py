"""The configuration: what a user may set, what it means, and why a wrong one is refused.

Values come from TOML files, merged left to right, then from `--set`. `load` either returns a `Config` that can run or
raises `ConfigError` naming key, value and expectation.
"""

from stream_rl.config.algorithm import Algorithm
from stream_rl.config.loading import from_dict, load
from stream_rl.config.schema import (
    Alarms,
    Config,
    EnvironmentConfig,
    Eval,
    Generate,
    Groups,
    JudgeConfig,
    JudgeEndpoint,
    Learner,
    Policy,
    Weights,
)
from stream_rl.config.toml import to_toml

__all__ = [
    "Alarms",
    "Algorithm",
    "Config",
    "EnvironmentConfig",
    "Eval",
    "Generate",
    "Groups",
    "JudgeConfig",
    "JudgeEndpoint",
    "Learner",
    "Policy",
    "Weights",
    "from_dict",
    "load",
    "to_toml",
]
