from __future__ import annotations

from stream_rl.app.draws import drawn_tasks
from stream_rl.config import from_dict


def test_a_short_split_is_drawn_again_and_again_and_that_is_said() -> None:
    config = from_dict(
        {
            "updates": 50,
            "groups": {"candidates": 16, "per_update": 16},
            "environments": [
                {"name": "household", "share": 1.0},
                {"name": "dbbench", "share": 2.0},
                {"name": "webshop", "share": 1.0},
            ],
        }
    )
    # 50 * 16 = 800 groups: 200, 400 and 200 of them
    assert drawn_tasks(config, {"dbbench": 160, "webshop": 200, "household": None}) == (
        "household endless; dbbench 160 tasks, 400 draws: each about 2.5 times; "
        "webshop 200 tasks, 200 draws: none twice"
    )
