"""A discrete-event model of any configuration: what would an update take, who would wait, where would the time go?"""

from stream_rl.simulate.model import simulate
from stream_rl.simulate.prediction import Prediction
from stream_rl.simulate.profile import Profile, read_profile, write_profile

__all__ = ["Prediction", "Profile", "read_profile", "simulate", "write_profile"]
