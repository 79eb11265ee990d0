"""Who is started again, after how long, and how often."""

from __future__ import annotations

from stream_rl.app.restarts import Restarts


def _waits(restarts: Restarts, times: int) -> list[float | None]:
    return [restarts.after(1) for _ in range(times)]


def test_a_role_is_started_again_five_times_without_an_update_between() -> None:
    restarts = Restarts(guest=False)
    assert _waits(restarts, 6) == [1.0, 2.0, 4.0, 8.0, 16.0, None]
    restarts.trained()
    assert _waits(restarts, 3) == [30.0, 30.0, 30.0]


def test_a_role_that_would_fail_again_is_given_up() -> None:
    assert Restarts(guest=False).after(2) is None
    guest = Restarts(guest=True)
    guest.served()
    assert guest.after(2) is None


def test_a_guest_that_never_served_is_not_tried_again_however_the_run_goes_on() -> None:
    guest = Restarts(guest=True)
    guest.trained()
    assert guest.after(1) is None


def test_a_guest_that_served_is_tried_for_ten_minutes_and_no_longer() -> None:
    guest = Restarts(guest=True)
    guest.served()
    waits = []
    while (wait_s := guest.after(-9)) is not None:
        guest.trained()  # the run goes on without it; that brings its server no nearer
        waits.append(wait_s)
    assert waits[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert 420 <= sum(waits) <= 600


def test_a_guest_that_came_back_has_all_its_tries_again() -> None:
    guest = Restarts(guest=True)
    guest.served()
    assert _waits(guest, 19)[-1] == 30.0
    guest.served()
    assert _waits(guest, 21)[-2:] == [30.0, None]
